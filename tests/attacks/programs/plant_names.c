/* collector: hostile names (newlines, 255 bytes, no UTF-8, escapes, patterns) cause no crash and no escape */
#include "attack.h"
int main(void) {
  char lengthy[256];
  memset(lengthy, 'n', 255);
  lengthy[255] = 0;
  const char *names[] = {"new\nline", "\xff\xfe", "\x1b[31m", "*", "[a-", "..x", "-rf", " ", "a\\..\\b", "%s%n", lengthy};
  mkdir("out", 0700);
  if (chdir("out")) return 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    int fd = open(names[i], O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1) return 1;
    close(fd);
  }
  return 0;
}
