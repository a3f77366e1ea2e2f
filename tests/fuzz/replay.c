/* replay.c - runs a fuzz target over files without libFuzzer: every file of the folders given, whole, and cut
 * short at a few places. What a fuzzer once found is committed as a seed and stays tested in every build, with
 * every compiler.
 *
 *   fuzz.fuzz_NAME FOLDER|FILE...
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define CUTS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input lies in a block of exactly its size, so that a sanitizer sees a read past its end. */
static int run_part(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        return 1;
    }
    memcpy(copy, bytes, size);
    int result = LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return result;
}

/* The number of inputs run, or -1. */
static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = file != NULL ? malloc(FILE_BYTES_MAX) : NULL;
    if (bytes == NULL) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        if (file != NULL) {
            (void)fclose(file);
        }
        return -1;
    }
    size_t size = fread(bytes, 1, FILE_BYTES_MAX, file);
    (void)fclose(file);
    int failed = run_part(bytes, size);
    for (size_t i = 0; i < CUTS && failed == 0; i++) {
        failed = run_part(bytes, size * i / CUTS);
    }
    free(bytes);
    if (failed != 0) {
        (void)fprintf(stderr, "%s: the target answered %d\n", path, failed);
        return -1;
    }
    return CUTS + 1;
}

static int run_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return run_file(path);
    }
    int count = 0;
    const struct dirent *entry;
    while (count >= 0 && (entry = readdir(folder)) != NULL) {
        char child[4096];
        struct stat status;
        int n = snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        if (n < 0 || (size_t)n >= sizeof(child) || stat(child, &status) != 0 ||
            !S_ISREG(status.st_mode)) {
            continue;
        }
        printf("%s\n", child);
        (void)fflush(stdout); /* the last line names the file that crashed */
        int done = run_file(child);
        count = done < 0 ? -1 : count + done;
    }
    (void)closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = run_folder(argv[i]);
        if (count <= 0) {
            (void)fprintf(stderr, "%s: %s\n", argv[i], count == 0 ? "no seeds" : "failed");
            return EXIT_FAILURE;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
