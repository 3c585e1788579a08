/* Runs a libFuzzer entry point over files and seeded mutations of them: fuzz COUNT SEED FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SPARE = 64, HEAD = 6000 }; /* room to grow; most changes go to the header */

static uint64_t random_state;

/* xorshift64 (Marsaglia, 2003) */
static size_t random_below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return n ? (size_t)(random_state % n) : 0;
}

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        *size = (size_t)ftell(file);
        rewind(file);
        bytes = malloc(*size + 1);
        if (bytes && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (file)
        fclose(file);
    return bytes;
}

static size_t insert(uint8_t *bytes, size_t size, size_t at, const char *text)
{
    size_t n = strlen(text);
    memmove(bytes + at + n, bytes + at, size - at);
    memcpy(bytes + at, text, n);
    return size + n;
}

/* One random change; the buffer has room for SPARE more bytes in all. Returns the new size. */
static size_t mutate(uint8_t *bytes, size_t size)
{
    static const char *const words[] = {"{",    "}",    "[",   "]",   "\"",  ",",
                                        ":",    "-",    "0",   "9",   ".5",  "\\u0000",
                                        "\xC0", "null", "F16", "I64", "1e9", "4294967296"};
    size_t at = random_below(random_below(4) && size > HEAD ? HEAD : size), n;
    if (size == 0)
        return 0;
    switch (random_below(7)) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << random_below(8));
        return size;
    case 1:
        bytes[at] = (uint8_t)random_below(256);
        return size;
    case 2:
        return insert(bytes, size, at, words[random_below(sizeof words / sizeof *words)]);
    case 3: /* leave out a few */
        n = 1 + random_below(size - at < 8 ? size - at : 8);
        memmove(bytes + at, bytes + at + n, size - at - n);
        return size - n;
    case 4: /* another digit keeps the JSON whole */
        while (at < size && (bytes[at] < '0' || bytes[at] > '9'))
            at++;
        if (at < size)
            bytes[at] = (uint8_t)('0' + random_below(10));
        return size;
    case 5: /* the length */
        bytes[random_below(size < 8 ? size : 8)] = (uint8_t)random_below(256);
        return size;
    default: /* cut short */
        return random_below(8) ? size : at;
    }
}

static void run_mutation(const uint8_t *seed, size_t size)
{
    uint8_t *bytes = malloc(size + SPARE);
    if (!bytes)
        abort();
    memcpy(bytes, seed, size);
    for (size_t changes = 1 + random_below(4); changes > 0; changes--)
        size = mutate(bytes, size);
    uint8_t *exact = malloc(size ? size : 1); /* so that reading past the end is noticed */
    if (!exact)
        abort();
    memcpy(exact, bytes, size);
    free(bytes);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s COUNT SEED FILE...\n", argv[0]);
        return 2;
    }
    unsigned long count = strtoul(argv[1], NULL, 10);
    random_state = strtoull(argv[2], NULL, 10) * 2 + 1; /* never 0 */
    for (int i = 3; i < argc; i++) {
        size_t size;
        uint8_t *seed = read_file(argv[i], &size);
        if (!seed) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 2;
        }
        LLVMFuzzerTestOneInput(seed, size);
        for (unsigned long j = 0; j < count; j++)
            run_mutation(seed, size);
        free(seed);
    }
    printf("%lu mutations of %d files\n", count * (unsigned long)(argc - 3), argc - 3);
    return 0;
}
