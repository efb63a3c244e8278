/* collector: a fifo or socket neither blocks nor is taken */
#include "attack.h"
int main(void) {
  mkdir("out", 0700);
  if (mkfifo("out/pipe", 0666)) refused();
  struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "out/socket"};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&at, sizeof at)) refused();
  return 0;
}
