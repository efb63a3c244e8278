/* kernel: no BPF programs or maps */
#include "attack.h"
int main(void) {
  uint32_t map[32] = {2 /* array */, 4, 4, 1};
  expect_refusal(syscall(SYS_bpf, 0, map, sizeof map), "bpf map");
  return verdict();
}
