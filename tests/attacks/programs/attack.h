/* What all attacks share: how a result is told, and what the test has planted.
 *
 * Every attack is a program of its own (`cc -static -pthread NAME.c`); the suite renames their mains
 * and links them into one, battery.c. A line on stdout is `@ NAME held|leaked|unmeasured: detail`.
 * What can be seen from outside is judged there, whatever is printed here.
 */
#ifndef ATTACK_H
#define ATTACK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef ATTACK_NAME
#define ATTACK_NAME "attack"
#endif

static int leaks_ __attribute__((unused));
static int refusal_ __attribute__((unused));

static inline void tell_(const char *kind, const char *format, va_list rest) {
  char text[512], line[640];
  vsnprintf(text, sizeof text, format, rest);
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < 32) *c = ' ';
  int size = snprintf(line, sizeof line, "@ %s %s: %s\n", ATTACK_NAME, kind, text);
  if (write(1, line, (size_t)size) < 0) _exit(9);
}

/* It got through; more may follow. */
static inline void leak(const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  tell_("leaked", format, rest);
  va_end(rest);
  leaks_++;
}

/* It was refused, with errno; another way may follow. "Absent" is told only when nothing else is known. */
static inline void refused(void) {
  if (!refusal_ || refusal_ == ENOENT) refusal_ = errno;
}

/* The end: held unless something leaked. */
static inline int verdict(void) {
  va_list none;
  memset(&none, 0, sizeof none);
  if (!leaks_) {
    char line[256];
    int size = snprintf(line, sizeof line, "@ %s held: %s\n", ATTACK_NAME,
                        refusal_ ? strerror(refusal_) : "nothing got through");
    if (write(1, line, (size_t)size) < 0) _exit(9);
  }
  return leaks_ ? 1 : 0;
}

/* One step: leak where the result is not negative. */
static inline void expect_refusal(long result, const char *what) {
  if (result >= 0)
    leak("%s", what);
  else
    refused();
}

static inline int unmeasured(const char *why) {
  char line[256];
  int size = snprintf(line, sizeof line, "@ %s unmeasured: %s\n", ATTACK_NAME, why);
  if (write(1, line, (size_t)size) < 0) _exit(9);
  return 2;
}

/* A word that the test gives in the environment. */
static inline const char *given(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

static inline const char *token(void) {
  static char text[128];
  snprintf(text, sizeof text, "%s-%s", given("LB_TOKEN"), ATTACK_NAME);
  return text;
}

/* Try to leave a file of our name in a directory. The test looks for it outside. */
static inline void drop_file(const char *directory) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, token());
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) {
    refused();
    return;
  }
  if (write(fd, "was here\n", 9) < 0) refused();
  close(fd);
  leak("created %s", path);
}

/* Try to open for writing, without changing anything. */
static inline void open_for_writing(const char *path) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  expect_refusal(fd, path);
  if (fd >= 0) close(fd);
}

/* Read and print the beginning of a file; the test knows what stands in it. */
static inline void read_out(const char *path) {
  char text[257];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    refused();
    return;
  }
  ssize_t size = read(fd, text, sizeof text - 1);
  if (size > 0) {
    text[size] = 0;
    leak("read %s: %s", path, text);
  } else {
    refused();
  }
  close(fd);
}

/* Whether a file (of /proc: with NULs) holds a text. */
static inline int holds(const char *path, const char *text) {
  static char data[1 << 18];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return 0;
  size_t size = 0;
  for (;;) {
    ssize_t got = read(fd, data + size, sizeof data - size);
    if (got <= 0) break;
    size += (size_t)got;
  }
  close(fd);
  return *text && memmem(data, size, text, strlen(text)) != NULL;
}

/* Calls act(pid) for every process that /proc shows, our own excepted. */
static inline void each_process(void (*act)(int pid)) {
  DIR *proc = opendir("/proc");
  if (!proc) {
    refused();
    return;
  }
  for (struct dirent *entry; (entry = readdir(proc));) {
    int pid = atoi(entry->d_name);
    if (pid > 0 && pid != getpid()) act(pid);
  }
  closedir(proc);
}

static inline int victim(void) { return atoi(given("LB_VICTIM")); }

#endif
