/* collector: files and directories without any permission cause no crash, and are removed afterwards */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  mkdir("out/closed", 0700);
  int fd = open("out/closed/inside", O_WRONLY | O_CREAT, 0000);
  if (fd < 0) return 1;
  fd = open("out/locked", O_WRONLY | O_CREAT, 0000);
  return fd < 0 || chmod("out/closed", 0000) || chmod("out", 0500);
}
