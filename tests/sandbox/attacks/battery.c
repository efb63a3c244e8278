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

int main(int argc, char **argv) {
  if (argc < 2) return 99;
  setenv("LB_CHANNEL", argv[1], 1);
  if (argc == 4 && !strcmp(argv[2], "alone")) {
    const struct entry *one = find(argv[3]);
    return one ? one->run(1, argv + 3) : 99;
  }
  for (int i = 2; i < argc; i++) {
    const struct entry *one = find(argv[i]);
    if (!one) return 99;
    pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(one->run(1, argv + i));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 98;
    if (WIFSIGNALED(status))
      dprintf(1, "@ %s signal: %d\n", one->name, WTERMSIG(status));
    else
      dprintf(1, "@ %s end: %d\n", one->name, WEXITSTATUS(status));
  }
  return 0;
}
