/* results: descriptors that a student sends do not stay open in the judge */
#include "attack.h"
int main(void) {
  int channel = atoi(given("LB_CHANNEL")), sent = 0;
  for (int i = 0; i < 200; i++) {
    char space[CMSG_SPACE(sizeof(int) * 100)] = {0}, byte = 'x';
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * 100);
    for (int k = 0; k < 100; k++) memcpy(CMSG_DATA(head) + k * (int)sizeof(int), &(int){1}, sizeof(int));
    if (sendmsg(channel, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    sent++;
  }
  dprintf(1, "sent %d\n", sent);
  return 0;
}
