/* reading: a job's environment holds nothing of the launcher's */
#include "attack.h"
extern char **environ;
int main(void) {
  for (char **one = environ; *one; one++)
    if (strstr(*one, given("LB_KEY_TAIL")) && strncmp(*one, "LB_KEY_TAIL", 11)) leak("%s", *one);
  return verdict();
}
