/* network: a unix socket of the host that any user may write to cannot be reached by its path */
#include "attack.h"
int main(void) {
  const char *paths[] = {given("LB_SOCKET"), "/var/run/docker.sock", "/run/dbus/system_bus_socket"};
  for (int i = 0; i < 3; i++) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", paths[i]);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) refused();
    else {
      if (i == 0 && write(fd, token(), strlen(token())) < 0) refused();
      leak("connected to %s", paths[i]);
    }
    if (fd >= 0) close(fd);
  }
  return verdict();
}
