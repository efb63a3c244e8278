/* Runs attacks by name: `CHANNEL NAME...`, each in a process of its own, or `CHANNEL alone NAME` in this one. */
#include "attack.h"

struct entry {
  const char *name;
  int (*run)(int, char **);
};
extern const struct entry battery_entries[];

static const struct entry *find(const char *name) {
  for (const struct entry *one = battery_entries; one->name; one++)
    if (!strcmp(one->name, name)) return one;
  return NULL;
}

/* Jobs that run have no alarm(): whoever takes longer than ten seconds is killed by its parent. */
static int ended(pid_t child, const sigset_t *children, int *status) {
  const struct timespec most = {10, 0};
  pid_t found;
  while ((found = waitpid(child, status, WNOHANG)) == 0)
    if (sigtimedwait(children, NULL, &most) < 0) kill(child, SIGKILL); /* else it, or an orphan, has ended */
  return found == child;
}

int main(int argc, char **argv) {
  if (argc < 2) return 99;
  setenv("LB_CHANNEL", argv[1], 1);
  if (argc == 4 && !strcmp(argv[2], "alone")) {
    const struct entry *one = find(argv[3]);
    return one ? one->run(1, argv + 3) : 99;
  }
  sigset_t children, before;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, &before);
  for (int i = 2; i < argc; i++) {
    const struct entry *one = find(argv[i]);
    if (!one) return 99;
    pid_t child = fork();
    if (child == 0) {
      sigprocmask(SIG_SETMASK, &before, NULL);
      _exit(one->run(1, argv + i));
    }
    int status = 0;
    if (child < 0 || !ended(child, &children, &status)) return 98;
    if (WIFSIGNALED(status))
      dprintf(1, "@ %s signal: %d\n", one->name, WTERMSIG(status));
    else
      dprintf(1, "@ %s end: %d\n", one->name, WEXITSTATUS(status));
  }
  return 0;
}
