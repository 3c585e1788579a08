/* Every rule of the format, by a file that breaks it and nothing else; and what must be accepted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/json_scan.h"
#include "common/safetensors.h"
#include "scratch.h"

#define ONE(entry) "{\"x\":" entry "}"

/* A header that must be refused. */
static const struct refusal {
    const char *name, *json;
    size_t data_bytes;
    const char *parts[3]; /* of the message, besides the path */
} refusals[] = {
    {"bad JSON: empty header", "", 0, {"bad JSON"}},
    {"bad JSON: only spaces", "   ", 0, {"bad JSON", "{"}},
    {"bad JSON: space before", " {}", 0, {"bad JSON", "{"}},
    {"bad JSON: a list", "[]", 0, {"bad JSON", "{"}},
    {"bad JSON: no end", "{\"x\":" F32_ENTRY("[1]", "0", "4"), 4, {"bad JSON", "comma"}},
    {"bad JSON: text after the end", "{}x", 0, {"text after its end"}},
    {"bad JSON: two documents", "{}{}", 0, {"text after its end"}},
    {"bad JSON: trailing comma",
     "{\"x\":" F32_ENTRY("[1]", "0", "4") ",}",
     4,
     {"string is expected"}},
    {"bad JSON: no colon", "{\"x\" 1}", 0, {"colon"}},
    {"bad JSON: comma in a list", ONE(F32_ENTRY("[1,]", "0", "4")), 4, {"\"x\"", "whole number"}},
    {"bad JSON: two commas", ONE(F32_ENTRY("[1,,1]", "0", "4")), 4, {"\"x\"", "whole number"}},
    {"bad JSON: leading zero", ONE(F32_ENTRY("[01]", "0", "4")), 4, {"\"x\"", "leading zero"}},
    {"bad JSON: control character",
     "{\"a\nb\":" F32_ENTRY("[1]", "0", "4") "}",
     4,
     {"control character"}},
    {"bad JSON: unknown escape", "{\"\\x\":" F32_ENTRY("[1]", "0", "4") "}", 4, {"escape"}},
    {"bad JSON: short escape", "{\"\\u12", 0, {"escape"}},
    {"bad JSON: no hexadecimal", "{\"\\u12G4\":1}", 0, {"hexadecimal"}},
    {"bad JSON: lone high surrogate", "{\"\\ud800\":1}", 0, {"surrogate"}},
    {"bad JSON: lone low surrogate", "{\"\\udc00\":1}", 0, {"surrogate"}},
    {"bad JSON: two low surrogates", "{\"\\udc00\\udc00\":1}", 0, {"surrogate"}},
    {"bad JSON: two high surrogates", "{\"\\ud800\\ud800\":1}", 0, {"surrogate"}},
    {"bad JSON: string without end", "{\"abc", 0, {"without an end"}},
    {"bad JSON: entry is no object", ONE("7"), 0, {"\"x\"", "object is expected"}},
    {"U+0000 in a name", "{\"a\\u0000b\":" F32_ENTRY("[1]", "0", "4") "}", 4, {"U+0000"}},
    {"bad UTF-8: lone continuation", "{\"\x80\":1}", 0, {"UTF-8"}},
    {"bad UTF-8: overlong", "{\"\xC0\xAF\":1}", 0, {"UTF-8"}},
    {"bad UTF-8: overlong of three", "{\"\xE0\x80\xAF\":1}", 0, {"UTF-8"}},
    {"bad UTF-8: surrogate", "{\"\xED\xA0\x80\":1}", 0, {"UTF-8"}},
    {"bad UTF-8: above U+10FFFF", "{\"\xF4\x90\x80\x80\":1}", 0, {"UTF-8"}},
    {"bad UTF-8: cut short", "{\"\xE2\x82\"}", 0, {"UTF-8"}},
    {"bad UTF-8: at the end", "{\"\xF0\x9F", 0, {"UTF-8"}},
    {"bad UTF-8: in metadata", "{\"__metadata__\":{\"a\":\"\xFF\"}}", 0, {"__metadata__", "UTF-8"}},
    {"duplicate tensor",
     "{\"x\":" F32_ENTRY("[1]", "0", "4") ",\"y\":" F32_ENTRY("[1]", "4", "8") ",\"x\":" F32_ENTRY(
         "[1]", "8", "12") "}",
     12,
     {"\"x\"", "duplicate key"}},
    {"duplicate tensor by escape",
     "{\"x\":" F32_ENTRY("[1]", "0", "4") ",\"\\u0078\":" F32_ENTRY("[1]", "4", "8") "}",
     8,
     {"\"x\"", "duplicate key"}},
    {"duplicate field",
     ONE("{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "duplicate key"}},
    {"duplicate metadata",
     "{\"__metadata__\":{\"a\":\"1\",\"b\":\"1\",\"a\":\"2\"}}",
     0,
     {"__metadata__", "duplicate key", "\"a\""}},
    {"metadata twice",
     "{\"__metadata__\":{},\"__metadata__\":{}}",
     0,
     {"__metadata__", "duplicate"}},
    {"metadata is no object", "{\"__metadata__\":\"a\"}", 0, {"__metadata__", "object"}},
    {"metadata of numbers",
     "{\"__metadata__\":{\"a\":1}}",
     0,
     {"__metadata__", "string is expected"}},
    {"metadata null", "{\"__metadata__\":{\"a\":null}}", 0, {"__metadata__", "string is expected"}},
    {"unknown field",
     ONE("{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"a\":0}"),
     4,
     {"\"x\"", "field other than"}},
    {"dtype missing",
     ONE("{\"shape\":[],\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "dtype is missing"}},
    {"shape missing",
     ONE("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "shape is missing"}},
    {"data_offsets missing",
     ONE("{\"dtype\":\"F32\",\"shape\":[]}"),
     0,
     {"\"x\"", "data_offsets is missing"}},
    {"dtype unknown",
     ONE("{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "unknown dtype"}},
    {"dtype in lower case",
     ONE("{\"dtype\":\"f32\",\"shape\":[],\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "unknown dtype"}},
    {"dtype is a number",
     ONE("{\"dtype\":32,\"shape\":[],\"data_offsets\":[0,4]}"),
     4,
     {"\"x\"", "string is expected"}},
    {"shape negative", ONE(F32_ENTRY("[-1]", "0", "4")), 4, {"\"x\"", "negative"}},
    {"shape negative zero", ONE(F32_ENTRY("[-0]", "0", "0")), 0, {"\"x\"", "negative"}},
    {"shape fractional", ONE(F32_ENTRY("[1.5]", "0", "4")), 4, {"\"x\"", "fractional"}},
    {"shape with exponent", ONE(F32_ENTRY("[1e0]", "0", "4")), 4, {"\"x\"", "fractional"}},
    {"shape of 64 bits and more",
     ONE(F32_ENTRY("[18446744073709551616]", "0", "4")),
     4,
     {"\"x\"", "overflows"}},
    {"shape product overflows",
     ONE(F32_ENTRY("[4294967296,4294967297]", "0", "4")),
     4,
     {"\"x\"", "overflows"}},
    {"shape bytes overflow",
     ONE(F32_ENTRY("[4611686018427387905]", "0", "4")),
     4,
     {"\"x\"", "overflows"}},
    {"shape in a string", ONE(F32_ENTRY("[\"1\"]", "0", "4")), 4, {"\"x\"", "whole number"}},
    {"shape is no list", ONE(F32_ENTRY("1", "0", "4")), 4, {"\"x\"", "list is expected"}},
    {"shape nested", ONE(F32_ENTRY("[[1]]", "0", "4")), 4, {"\"x\"", "whole number"}},
    {"shape of nine dimensions",
     ONE(F32_ENTRY("[1,1,1,1,1,1,1,1,1]", "0", "4")),
     4,
     {"\"x\"", "8 dimensions"}},
    {"offset negative", ONE(F32_ENTRY("[1]", "-4", "0")), 4, {"\"x\"", "negative"}},
    {"offset fractional", ONE(F32_ENTRY("[1]", "0", "4.0")), 4, {"\"x\"", "fractional"}},
    {"offset overflows",
     ONE(F32_ENTRY("[1]", "0", "18446744073709551620")),
     4,
     {"\"x\"", "overflows"}},
    {"one offset",
     ONE("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}"),
     4,
     {"\"x\"", "two numbers"}},
    {"three offsets",
     ONE("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}"),
     4,
     {"\"x\"", "two numbers"}},
    {"begin above end", ONE(F32_ENTRY("[1]", "4", "0")), 4, {"\"x\"", "begin after their end"}},
    {"begin above end by wrap",
     ONE(F32_ENTRY("[1]", "18446744073709551612", "0")),
     4,
     {"\"x\"", "begin after their end"}},
    {"too few bytes", ONE(F32_ENTRY("[2]", "0", "4")), 4, {"\"x\"", "4 bytes", "is 8"}},
    {"too many bytes", ONE(F32_ENTRY("[1]", "0", "8")), 8, {"\"x\"", "8 bytes", "is 4"}},
    {"bytes of a zero dimension",
     ONE(F32_ENTRY("[4,0]", "0", "4")),
     4,
     {"\"x\"", "4 bytes", "is 0"}},
    {"part of a byte",
     ONE("{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}"),
     1,
     {"\"x\"", "bytes"}},
    {"past the end", ONE(F32_ENTRY("[2]", "0", "8")), 4, {"\"x\"", "past the end"}},
    {"overlap",
     "{\"x\":" F32_ENTRY("[2]", "0", "8") ",\"y\":" F32_ENTRY("[2]", "4", "12") "}",
     12,
     {"\"y\"", "overlap"}},
    {"same range twice",
     "{\"x\":" F32_ENTRY("[1]", "0", "4") ",\"y\":" F32_ENTRY("[1]", "0", "4") "}",
     4,
     {"overlap"}},
    {"empty one inside another",
     "{\"x\":" F32_ENTRY("[2]", "0", "8") ",\"y\":" F32_ENTRY("[0]", "4", "4") "}",
     8,
     {"\"y\"", "overlap"}},
    {"gap",
     "{\"x\":" F32_ENTRY("[1]", "0", "4") ",\"y\":" F32_ENTRY("[1]", "8", "12") "}",
     12,
     {"\"y\"", "gap"}},
    {"not from 0", ONE(F32_ENTRY("[1]", "4", "8")), 8, {"\"x\"", "do not start at 0"}},
    {"data left over", ONE(F32_ENTRY("[1]", "0", "4")), 5, {"end at 4", "the data at 5"}},
    {"data without tensors", "{}", 1, {"end at 0", "the data at 1"}},
};

static void test_refusal(void **state)
{
    const struct refusal *r = *state;
    const char *path = scratch_safetensors("refused.safetensors", r->json, r->data_bytes);
    const char *const parts[] = {path, r->parts[0], r->parts[1], r->parts[2], NULL};
    expect_refused(path, ERR_FORMAT, parts);
}

/* A file given byte by byte. */
static const struct raw {
    const char *name;
    const char *bytes;
    size_t count;
    const char *parts[3];
} raws[] = {
#define BYTES(text) text, sizeof text - 1
    {"file: empty", BYTES(""), {"shorter than 8 bytes"}},
    {"file: seven bytes", BYTES("\2\0\0\0\0\0\0"), {"shorter than 8 bytes"}},
    {"file: length above the limit", BYTES("\1\xE1\xF5\5\0\0\0\0{}"), {"100000001", "100000000"}},
    {"file: length past the end", BYTES("\3\0\0\0\0\0\0\0{}"), {"3 bytes in a file of 10"}},
    {"file: length that wraps",
     BYTES("\xF8\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"),
     {"18446744073709551608"}},
    {"file: length 2^64-1", BYTES("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"), {"18446744073709551615"}},
    {"file: NUL in the header", BYTES("\3\0\0\0\0\0\0\0{}\0"), {"text after its end"}},
    {"file: NUL in a name", BYTES("\6\0\0\0\0\0\0\0{\"a\0\":"), {"control character"}},
    {"file: a character that ends in the data",
     BYTES("\4\0\0\0\0\0\0\0{\"\xF0\x9F\x98\x80"),
     {"UTF-8"}},
    {"file: NUL escape", BYTES("\5\0\0\0\0\0\0\0{\"\\\0\""), {"escape"}},
    {"foreign: Git-LFS pointer",
     BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"),
     {"Git-LFS pointer", "git lfs pull"}},
    {"foreign: HTML page",
     BYTES("\n  <!DOCTYPE html>\n<html><body>404</body></html>"),
     {"HTML page", "download"}},
    {"foreign: HTML in capitals", BYTES("<HTML><HEAD></HEAD></HTML>"), {"HTML page"}},
    {"foreign: zip checkpoint",
     BYTES("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0archive/data.pkl"),
     {"zip checkpoint (.pt", "torch.load", "save_file"}},
    {"foreign: pickle checkpoint",
     BYTES("\x80\2}q\0(X\5\0\0\0model"),
     {"pickle checkpoint", "torch.load", "save_file"}},
    {"foreign: pickle of protocol 4", BYTES("\x80\4\x95\0\0\0\0\0\0\0\0"), {"pickle checkpoint"}},
};

static void test_raw(void **state)
{
    const struct raw *r = *state;
    const char *path = scratch_write("raw.safetensors", r->bytes, r->count);
    const char *const parts[] = {path, r->parts[0], r->parts[1], r->parts[2], NULL};
    expect_refused(path, ERR_FORMAT, parts);
}

/* A header that must be accepted: how many tensors it has. */
static const struct acceptance {
    const char *name, *json;
    size_t data_bytes, count;
} acceptances[] = {
    {"no tensor", "{}", 0, 0},
    {"metadata only", "{\"__metadata__\":{\"a\":\"b\"}}", 0, 0},
    {"scalar", ONE(F32_ENTRY("[]", "0", "4")), 4, 1},
    {"zero-sized dimension", ONE(F32_ENTRY("[3,0,2]", "0", "0")), 0, 1},
    {"zero-sized between others",
     "{\"a\":" F32_ENTRY("[1]", "0", "4") ",\"b\":" F32_ENTRY("[0]", "4", "4") ",\"c\":" F32_ENTRY(
         "[1]", "4", "8") "}",
     8, 3},
    {"zero-sized, named after its neighbour",
     "{\"a\":" F32_ENTRY("[1]", "0", "4") ",\"b\":" F32_ENTRY("[1]", "4", "8") ",\"c\":" F32_ENTRY(
         "[0]", "4", "4") "}",
     8, 3},
    {"eight dimensions", ONE(F32_ENTRY("[1,1,1,1,1,1,1,2]", "0", "8")), 8, 1},
    {"any order of fields", ONE("{\"data_offsets\":[0,4],\"shape\":[1],\"dtype\":\"F32\"}"), 4, 1},
    {"any order of tensors",
     "{\"a\":" F32_ENTRY("[1]", "8", "12") ",\"b\":" F32_ENTRY("[2]", "0", "8") "}", 12, 2},
    {"trailing spaces", "{}        ", 0, 0},
    {"white space inside",
     "{ \"x\" :\n\t{ \"dtype\" : \"F32\" , \"shape\" : [ 1 , 1 ] ,\r\n"
     "\"data_offsets\" : [ 0 , 4 ] } }",
     4, 1},
    {"odd length of the header", "{\"xy\":" F32_ENTRY("[1]", "0", "4") "}", 4, 1},
    {"dtypes that are not used",
     "{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[8,11]},"
     "\"c\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[11,12]},"
     "\"d\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[12,15]}}",
     15, 4},
    {"names in any script",
     "{\"\xE2\x82\xAC \xF0\x9F\x98\x80 \\ud83d\\ude00 \\n \\u00e9\":" F32_ENTRY("[1]", "0",
                                                                                "4") "}",
     4, 1},
    {"a name that starts like metadata", "{\"__metadata__x\":" F32_ENTRY("[1]", "0", "4") "}", 4,
     1},
    {"an empty name", "{\"\":" F32_ENTRY("[1]", "0", "4") "}", 4, 1},
};

static void test_acceptance(void **state)
{
    const struct acceptance *a = *state;
    struct safetensors *file;
    const char *path = scratch_safetensors("accepted.safetensors", a->json, a->data_bytes);
    enum status status = safetensors_open(path, &file);
    if (status != OK)
        fail_msg("%s", status_first()->text);
    assert_int_equal(safetensors_count(file), a->count);
    assert_string_equal(safetensors_path(file), path);
    for (size_t i = 0; i < a->count; i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        assert_ptr_equal(safetensors_find(file, t->name), t);
        assert_string_equal(t->file, path);
    }
    safetensors_close(file);
}

static void test_decoded_name(void **state)
{
    (void)state;
    struct safetensors *file;
    const char *json = "{\"\\ud83d\\ude00\\u00e9\\\"\\/\\u20ac\":" F32_ENTRY("[]", "0", "4") "}";
    assert_int_equal(safetensors_open(scratch_safetensors("name.safetensors", json, 4), &file), OK);
    assert_non_null(safetensors_find(file, "\xF0\x9F\x98\x80\xC3\xA9\"/\xE2\x82\xAC"));
    assert_null(safetensors_find(file, "x"));
    safetensors_close(file);
}

/* What a message shows of a hostile name: no control characters, cut between characters. */
static void test_quote(void **state)
{
    (void)state;
    char out[JSON_QUOTED], name[512];
    assert_string_equal(json_quote(out, "a\033[31m\n"), "\"a?[31m?\"");
    for (size_t i = 0; i + 2 < sizeof name; i += 2)
        memcpy(name + i, "\xC3\xA9", 3);
    json_quote(out, name);
    size_t n = strlen(out);
    assert_true(n < JSON_QUOTED && strcmp(out + n - 4, "...\"") == 0);
    assert_int_equal((unsigned char)out[n - 5], 0xA9);
}

/* 200,000 tensors: anything quadratic would take minutes. */
static void test_many_tensors(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    char *json;
    size_t size;
    FILE *stream = open_memstream(&json, &size);
    assert_non_null(stream);
    for (int i = 0; i < COUNT; i++)
        fprintf(stream, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                i ? ',' : '{', i, i, i + 1);
    fputc('}', stream);
    fclose(stream);
    struct safetensors *file;
    const char *path = scratch_safetensors("many.safetensors", json, COUNT);
    free(json);
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), COUNT);
    assert_int_equal(safetensors_find(file, "t199999")->bytes, 1);
    assert_string_equal(safetensors_at(file, 7)->name, "t7");
    safetensors_close(file);
}

/* Nesting costs no stack: refused where a value is expected to be flat, and in what is skipped. */
static void test_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *json = malloc(DEPTH + 6);
    assert_non_null(json);
    memcpy(json, "{\"x\":", 5);
    memset(json + 5, '[', DEPTH);
    json[5 + DEPTH] = 0;
    expect_refused(scratch_safetensors("deep.safetensors", json, 0), ERR_FORMAT,
                   (const char *const[]){"object is expected", NULL});
    expect_refused(scratch_write("deep.safetensors.index.json", json, DEPTH + 5), ERR_FORMAT,
                   (const char *const[]){"too deeply", NULL});
    free(json);
}

#define COUNT(array) (sizeof array / sizeof *array)
#define ADD_ALL(cases, function)                                                                   \
    for (size_t i = 0; i < COUNT(cases); i++)                                                      \
        tests[n++] = (struct CMUnitTest)                                                           \
        {                                                                                          \
            .name = cases[i].name, .test_func = function, .initial_state = (void *)&cases[i]       \
        }

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(test_decoded_name),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_deep_nesting),
    };
    struct CMUnitTest tests[COUNT(refusals) + COUNT(raws) + COUNT(acceptances) + COUNT(others)];
    size_t n = 0;
    ADD_ALL(refusals, test_refusal);
    ADD_ALL(raws, test_raw);
    ADD_ALL(acceptances, test_acceptance);
    for (size_t i = 0; i < COUNT(others); i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("safetensors", tests, n, scratch_make, scratch_remove);
}
