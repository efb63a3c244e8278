/* results: a message larger than any that is expected does no harm */
#include "attack.h"
int main(void) {
  static char data[1 << 20];
  int channel = atoi(given("LB_CHANNEL"));
  memset(data, '[', sizeof data);
  for (size_t size = sizeof data; size > 1000; size /= 2)
    if (send(channel, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) break;
  return 0;
}
