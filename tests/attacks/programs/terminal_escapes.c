/* results: escape sequences, control bytes and broken UTF-8 in output do not reach a terminal */
#include "attack.h"
int main(void) {
  const char text[] = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \xc2\x9b" "31m \x9b" "5m \x00 \x08\x08 \xe2\x80\xae"
                      "desrever \xff\xfe \x1bP+q544e\x1b\\ [bold]markup[/bold] end\r\n";
  return write(1, text, sizeof text - 1) < 0;
}
