/* gives_up.c - `sx-gives-up SOCKET MODEL`: a caller who wants an answer of the daemon at SOCKET no more as soon as it
 * hears of progress. Prints the code of the compile and how often it heard of progress. */
#include <stdio.h>
#include <stdlib.h>

#include "client/symplex.h"

static void hear(void *self, const char *stage, uint64_t done, uint64_t total)
{
    unsigned *heard = self;
    (void)stage;
    (void)done;
    (void)total;
    (*heard)++;
}

static int wants_no_more(void *self)
{
    const unsigned *heard = self;
    return *heard > 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fputs("usage: sx-gives-up SOCKET MODEL\n", stderr);
        return EXIT_FAILURE;
    }
    unsigned heard = 0;
    symplex_options options = {.socket = argv[1],
                               .daemon = SYMPLEX_DAEMON_ONLY,
                               .progress = hear,
                               .stop = wants_no_more,
                               .self = &heard};
    symplex_dim batch = {"batch", 64};
    symplex_program program = {.path = argv[2], .target = "h100", .dims = &batch, .dim_count = 1};
    symplex_client *client = NULL;
    symplex_error error = {0};
    void *bytes = NULL;
    size_t size = 0;
    symplex_code code = symplex_open(&options, &client, &error);
    if (code != SYMPLEX_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return EXIT_FAILURE;
    }
    code = symplex_compile(client, &program, &bytes, &size, NULL, &error);
    (void)printf("code %d, %zu bytes, heard %u\n", (int)code, size, heard);
    symplex_free(bytes);
    symplex_close(client);
    return EXIT_SUCCESS;
}
