/* Stands in for tests/gpu/probe.cu where there is no GPU: it says what a GPU would have, so that what
 * the items make of it can be tried. Compiled with -DBAD it says what must not be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef BAD
#define BAD 0
#endif

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int channel = argc > 2 ? atoi(argv[2]) : -1;
    char word[32];
    if (!strcmp(mode, "known")) {
        printf("{\"capability\": \"9.0\", \"wrong_elements\": %d, \"kernel_us\": 187.5}\n", 0);
    } else if (!strcmp(mode, "fill")) {
        printf("{\"bytes\": 1073741824}\n");
    } else if (!strcmp(mode, "search")) {
        printf("{\"bytes\": 1073741824, \"words_equal\": %d, \"words_not_zero\": %d}\n", 7 * BAD, 7 * BAD);
    } else if (!strcmp(mode, "hang")) {
        if (BAD) return 0;
        send(channel, "running", 7, MSG_NOSIGNAL);
        for (;;) pause();
    } else if (!strcmp(mode, "illegal")) {
        if (BAD) return 0;
        printf("{\"error\": \"cudaErrorIllegalAddress\", \"where\": \"write_outside\"}\n");
        return 3;
    } else if (!strcmp(mode, "count")) {
        int rounds = 0;
        while (recv(channel, word, sizeof word, MSG_DONTWAIT) <= 0) {
            snprintf(word, sizeof word, "%d", ++rounds);
            send(channel, word, strlen(word), MSG_NOSIGNAL);
            usleep(1000);
        }
        printf("{\"rounds\": %d, \"wrong_elements\": %d}\n", rounds, BAD);
    }
    return 0;
}
