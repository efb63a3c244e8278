/* network: an abstract unix socket of the host cannot be reached */
#include "attack.h"
int main(void) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  int size = snprintf(to.sun_path + 1, sizeof to.sun_path - 1, "%s", given("LB_ABSTRACT"));
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  socklen_t length = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)size);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, length) || write(fd, token(), strlen(token())) < 0) refused();
  else leak("connected");
  return verdict();
}
