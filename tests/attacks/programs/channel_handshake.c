/* results: forged messages of the launcher on the channel change nothing */
#include "attack.h"
int main(void) {
  const char *words[] = {"{\"ready\": true}", "ready", "go", "{\"failed\": \"no memory\"}", "{\"error\": \"x\"}", "", "\xff\xfe"};
  int channel = atoi(given("LB_CHANNEL"));
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) send(channel, words[i], strlen(words[i]), MSG_NOSIGNAL);
  dprintf(2, "launcher: sandbox_error\n");
  return 3;
}
