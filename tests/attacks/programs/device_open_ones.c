/* devices: devices that any user may open (FUSE, KVM, TUN, vhost, vsock, userfaultfd) are absent */
#include "attack.h"
int main(void) {
  const char *files[] = {"/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock",
                         "/dev/vsock", "/dev/userfaultfd", "/dev/udmabuf", "/dev/dri/renderD128", "/dev/snd/timer"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) expect_refusal(open(files[i], O_RDWR | O_NONBLOCK), files[i]);
  return verdict();
}
