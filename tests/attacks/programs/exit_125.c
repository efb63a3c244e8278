/* results: exit code 125 (which container engines use for themselves) is the student's */
int main(void) { return 125; }
