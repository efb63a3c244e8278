/* reading: no file can be opened by its handle, past all directories */
#include "attack.h"
int main(void) {
  struct {
    struct file_handle head;
    unsigned char bytes[128];
  } handle;
  memset(&handle, 0, sizeof handle);
  handle.head.handle_bytes = 8;
  handle.head.handle_type = 1;
  handle.bytes[0] = 2; /* the root inode of ext4 */
  int root = open("/", O_RDONLY | O_DIRECTORY);
  int fd = open_by_handle_at(root, &handle.head, O_RDONLY);
  if (fd >= 0 || errno == ESTALE) leak("open_by_handle_at reached the file system");
  else refused();
  return verdict();
}
