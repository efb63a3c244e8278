/* results: exit code 97 is the student's, not a failure of the sandbox */
int main(void) { return 97; }
