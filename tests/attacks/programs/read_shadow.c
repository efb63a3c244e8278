/* reading: password hashes and host keys cannot be read */
#include "attack.h"
int main(void) {
  const char *files[] = {"/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key", "/etc/sudoers"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    int fd = open(files[i], O_RDONLY);
    char byte;
    if (fd >= 0 && read(fd, &byte, 1) == 1) leak("read %s", files[i]);
    else refused();
  }
  return verdict();
}
