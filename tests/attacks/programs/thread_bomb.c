/* bombs: threads are limited */
#include "attack.h"
#include <pthread.h>
static void *idle(void *unused) {
  pause();
  return unused;
}
int main(void) {
  int most = atoi(given("LB_PROCESSES")), made = 0;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 16);
  while (made < 4 * most) {
    pthread_t thread;
    if ((errno = pthread_create(&thread, &small, idle, NULL))) {
      refused();
      break;
    }
    made++;
  }
  if (made > most + 16) leak("%d threads", made);
  fflush(NULL);
  _exit(verdict());
}
