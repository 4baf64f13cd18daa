/* The Jinja interpreter: a table row per feature, each refusal by its words, origins byte by byte, each limit
 * hit exactly and passed by one. Byte equality with Jinja2 itself is tests/text/test_chat_jinja2.py.
 */
#include "text/jinja/jinja.h"

#include "base/limits.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct rendering {
    lw_status status;
    lw_diag d;
    lw_buf text;
    lw_buf origins;
} rendering;

/* x is the one outside variable, given as JSON; t is a trusted text. */
static rendering render_within(const char *source, const char *x_json, lw_jinja_limits limits)
{
    rendering r = { .status = LW_OK };
    lw_jinja *program = NULL;
    json_t *x = json_loads(x_json, JSON_DECODE_ANY, NULL);
    assert_non_null(x);
    const lw_jinja_variable variables[] = { { .name = "x", .json = x }, { .name = "t", .text = "trusted" } };
    const lw_jinja_input input = { .variables = variables, .count = 2, .limits = limits };
    r.status = lw_jinja_parse(source, strlen(source), "test", &program, &r.d);
    if (r.status == LW_OK) r.status = lw_jinja_render(program, &input, &r.text, &r.origins, &r.d);
    lw_jinja_free(program);
    json_decref(x);
    return r;
}

static rendering render(const char *source, const char *x_json)
{
    return render_within(source, x_json, lw_jinja_limits_default());
}

static void close_rendering(rendering *r)
{
    lw_buf_deinit(&r->text);
    lw_buf_deinit(&r->origins);
}

static const char *text_of(const rendering *r) { return r->text.bytes == NULL ? "" : r->text.bytes; }

static void features_give_their_text(void **state)
{
    (void)state;
    static const struct row {
        const char *source, *x, *wanted;
    } rows[] = {
        { "a{{ 1 + 2 * 3 }}b", "0", "a7b" },
        { "{{ 7 // -2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }}", "0", "-4 2 3.5 0.5" },
        { "{{ 1e16 }} {{ 0.1 }} {{ 100.0 }} {{ 1e-5 }}", "0", "1e+16 0.1 100.0 1e-05" },
        { "{{ none }}{{ true }}{{ nothing }}", "0", "NoneTrue" },
        { "{{ x }}", "[1,\"a'b\",null,{\"k\":1.5}]", "[1, \"a'b\", None, {'k': 1.5}]" },
        { "{{ x | tojson }}", "{\"b\":[1,\"\\u00e9<\"],\"a\":{}}", "{\"b\": [1, \"\xc3\xa9<\"], \"a\": {}}" },
        { "{{ x | tojson(indent=2) }}", "[1]", "[\n  1\n]" },
        { "{{ x[1:3] }}{{ x[::-1] }}", "\"h\xc3\xa9llo\"", "\xc3\xa9loll\xc3\xa9h" },
        { "{% for a in x if a > 1 %}{{ loop.index }}{{ a }}{{ loop.last }},{% endfor %}", "[1,2,3]",
            "12False,23True," },
        { "{% for a in [] %}{% else %}none{% endfor %}", "0", "none" },
        { "{% for a in x %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 4 %}{% break %}"
          "{% endif %}{{ a }}"
          "{% endfor %}", "[1,2,3,4,5]", "13" },
        { "{% set n = namespace(c=0) %}{% for a in x %}{% set n.c = n.c + a %}{% endfor %}{{ n.c }}", "[1,2]",
            "3" },
        { "{% macro m(a, b=a) %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}", "0", "<11><32>" },
        { "  {% if true %}\n  b\n  {%- endif %}\nc", "0", "  bc" },
        { "{% raw %}{{ x }}{% endraw %}{# gone #}", "0", "{{ x }}" },
        { "{{ x.items }}|{{ x['a'] }}|{{ x.zz is defined }}", "{\"a\":1}", NULL },
        { "{{ 'a' if x else 'b' }}{{ 'c' if x }}", "0", "b" },
        { "{{ '<' + ('>' | safe) }}{{ '<' ~ ('>' | safe) }}", "0", "&lt;><>" },
        { "{% generation %}{{ t }}{% endgeneration %}", "0", "trusted" },
        { "{% set v %}a{{ x }}{% endset %}{{ v | upper }}", "\"\xc3\x9f\"", "ASS" },
        { "line\n", "0", "line" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rendering r = render(rows[i].source, rows[i].x);
        if (rows[i].wanted == NULL) {
            assert_int_equal(r.status, LW_UNSUPPORTED);
        } else {
            if (r.status != LW_OK) fail_msg("%s: %s", rows[i].source, r.d.text);
            assert_string_equal(text_of(&r), rows[i].wanted);
            assert_int_equal(r.text.count, r.origins.count);
        }
        close_rendering(&r);
    }
}

static void failures_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct row {
        const char *source;
        lw_status status;
        const char *words;
    } rows[] = {
        { "{{ raise_exception('own words') }}", LW_BAD_INPUT, "chat template raises: own words" },
        { "a\n{{ nothing.x }}", LW_BAD_INPUT, "test: line 2: 'nothing' is undefined" },
        { "{{ x.y.z }}", LW_BAD_INPUT, "'int object' has no attribute or element 'y'" },
        { "{{ 'a' + 1 }}", LW_BAD_INPUT, "unsupported operands for +: 'str object' and 'int object'" },
        { "{{ 1 / 0 }}", LW_BAD_INPUT, "division by zero" },
        { "{{ [1].append(2) }}", LW_BAD_INPUT, "access to attribute 'append' of 'list object' is unsafe" },
        { "{{ 9223372036854775807 + 1 }}", LW_UNSUPPORTED, "integer beyond 64 bits" },
        { "{{ 99999999999999999999 }}", LW_UNSUPPORTED, "integer beyond 64 bits" },
        { "{{ x | pprint }}", LW_UNSUPPORTED, "the filter 'pprint' is not supported" },
        { "{{ 'a'.zfill(3) }}", LW_UNSUPPORTED, "the string method 'zfill' is not supported" },
        { "{{ x is escaped(1) }}", LW_BAD_INPUT, "takes 0 arguments" },
        { "{{ x is prime }}", LW_UNSUPPORTED, "the test 'prime' is not supported" },
        { "{{ strftime_now('%Y') }}", LW_UNSUPPORTED, "the function 'strftime_now' is not supported" },
        { "{% include 'a' %}", LW_UNSUPPORTED, "the statement 'include' is not supported" },
        { "{% for a in b recursive %}{% endfor %}", LW_UNSUPPORTED, "recursive loops" },
        { "{% if x %}", LW_BAD_INPUT, "expected elif, got the end of the template" },
        { "{{ x", LW_BAD_INPUT, "the template ends inside {{ or {%" },
        { "{% break %}", LW_BAD_INPUT, "break or continue outside a loop" },
        { "{% set d = {} %}{% set d.a = 1 %}", LW_BAD_INPUT, "cannot assign attribute 'a'" },
        { "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", LW_BAD_INPUT, "macro 'm' takes not more than 1" },
        { "{{ f(*x) }}", LW_UNSUPPORTED, "*args and **kwargs" },
        { "{{ range(100001) }}", LW_BAD_INPUT, "range: more than 100000 items" },
        { "{{ nothing | tojson }}", LW_BAD_INPUT, "tojson: a 'Undefined object' is not JSON" },
        { "\xff", LW_BAD_INPUT, "the template is not UTF-8" },
        { "{{ '\\ud800' }}", LW_UNSUPPORTED, "half a surrogate pair" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rendering r = render(rows[i].source, "1");
        assert_int_equal(r.status, rows[i].status);
        if (strstr(r.d.text, rows[i].words) == NULL) fail_msg("%s: %s", rows[i].source, r.d.text);
        assert_int_equal(r.text.count, 0);
        close_rendering(&r);
    }
}

/* The source's own capitals are trusted; all that comes from x must be outside. */
static void origins_follow_each_byte(void **state)
{
    (void)state;
    static const struct row {
        const char *source, *x, *text, *origins;
    } rows[] = {
        { "A{{ x }}B{{ t }}", "\"yy\"", "AyyBtrusted", "01100000000" },
        { "{{ 'A' ~ x ~ 'B' }}", "1.5", "A1.5B", "01110" },
        { "{{ ('A' + x) | upper }}", "\"y\"", "AY", "01" },
        { "{{ ('  A' ~ x ~ ' ') | trim }}", "\"y \"", "Ay", "01" },
        { "{{ ('A' ~ x)[::-1] }}", "\"yz\"", "zyA", "110" },
        { "{{ ('A' ~ x)[0:2] }}", "\"yz\"", "Ay", "01" },
        { "{{ x | tojson }}", "{\"k\":[\"\\\"\",2]}", "{\"k\": [\"\\\"\", 2]}", "1111111111111111" },
        { "{{ {'A': x} | tojson }}", "\"y\"", "{\"A\": \"y\"}", "1101111111" },
        { "{{ x }}", "[\"y\"]", "['y']", "11111" },
        { "{{ ['A'] }}", "0", "['A']", "00000" },
        { "{% for k, v in x.items() %}A{{ k }}{{ v }}{% endfor %}", "{\"k\":null}", "AkNone", "011111" },
        { "{{ ['A', x, 'B'] | join('-') }}", "\"y\"", "A-y-B", "00100" },
        { "{{ x | join('-') }}", "[\"y\",\"z\"]", "y-z", "101" },
        { "{{ x.split(',')[1] }}A", "\"y,z\"", "zA", "10" },
        { "{{ 'AyA' | replace('y', x) }}", "\"zz\"", "AzzA", "0110" },
        { "{{ x | replace('y', 'A') }}", "\"yz\"", "Az", "01" },
        { "{% macro m(a) %}A{{ a }}{% endmacro %}{{ m(x) ~ 'B' }}", "\"y\"", "AyB", "010" },
        { "{% set n = namespace(s='A') %}{% set n.s = n.s ~ x %}{{ n.s }}", "\"y\"", "Ay", "01" },
        { "{% set v %}A{{ x }}{% endset %}{{ v }}", "\"y\"", "Ay", "01" },
        { "{{ (x + 1) ~ 'A' }}", "1", "2A", "10" },
        { "{{ x | length }}A{{ x is string }}", "\"y\"", "1ATrue", "101111" },
        { "{{ x | indent(1, true) }}", "\"y\\nz\"", " y\n z", "11111" },
        { "{{ ('A' ~ x) | e }}", "\"<\"", "A&lt;", "01111" },
        { "{{ x | int }}{{ 7 | string }}", "\"5\"", "57", "10" },
        { "{{ 'A' * 2 ~ x * 2 }}", "\"y\"", "AAyy", "0011" },
        { "{{ x | title }}{{ 'a' | title }}", "\"y\"", "YA", "10" },
        { "{{ x | first }}{{ x | last }}{{ x | reverse }}", "\"yz\"", "yzzy", "1111" },
        { "{{ x | default('A') }}{{ nothing | default('A') }}", "\"y\"", "yA", "10" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rendering r = render(rows[i].source, rows[i].x);
        if (r.status != LW_OK) fail_msg("%s: %s", rows[i].source, r.d.text);
        assert_string_equal(text_of(&r), rows[i].text);
        assert_int_equal(r.origins.count, strlen(rows[i].origins));
        for (size_t k = 0; k < r.origins.count; k++)
            if (r.origins.bytes[k] + '0' != rows[i].origins[k])
                fail_msg("%s: byte %zu of '%s' has origin %d", rows[i].source, k, rows[i].text,
                         r.origins.bytes[k]);
        close_rendering(&r);
    }
}

/* Where a value came from never changes the text: the same filters over a literal and over outside data. */
static void origins_never_change_the_text(void **state)
{
    (void)state;
    static const char *const tails[] = {
        "v", "v | upper", "v | tojson", "v | trim ~ '!'", "v[1:-1]", "v[::-2]", "v | replace('l', 'LL')",
            "v | title",
        "v.split('l') | join('+')", "v | length", "v * 3", "[v, v] | unique | join", "{v: v}", "v | e",
            "v | indent",
        "v | list | sort | join", "v.strip('h') ~ v", "v | reverse", "v in [v]", "v | string | capitalize",
    };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char from_literal[256], from_outside[256];
        snprintf(from_literal, sizeof from_literal, "{%% set v = ' h\\u00e9llo <W\\u00f6rld>\\n' %%}{{ %s }}",
                 tails[i]);
        snprintf(from_outside, sizeof from_outside, "{%% set v = x %%}{{ %s }}", tails[i]);
        rendering a = render(from_literal, "0");
        rendering b = render(from_outside, "\" h\\u00e9llo <W\\u00f6rld>\\n\"");
        if (a.status != LW_OK || b.status != LW_OK) fail_msg("%s: %s%s", tails[i], a.d.text, b.d.text);
        assert_string_equal(text_of(&a), text_of(&b));
        assert_null(memchr(a.origins.bytes, LW_ORIGIN_OUTSIDE, a.origins.count));
        assert_non_null(memchr(b.origins.bytes, LW_ORIGIN_OUTSIDE, b.origins.count));
        close_rendering(&a);
        close_rendering(&b);
    }
}

static lw_status status_within(const char *source, const char *x, lw_jinja_limits limits)
{
    rendering r = render_within(source, x, limits);
    const lw_status status = r.status;
    close_rendering(&r);
    return status;
}

static void output_ends_at_its_limit(void **state)
{
    (void)state;
    lw_jinja_limits limits = lw_jinja_limits_default();
    limits.output_bytes = 5;
    assert_int_equal(status_within("{{ 'a' * 4 }}", "0", limits), LW_OK);
    assert_int_equal(status_within("{{ 'a' * 5 }}", "0", limits), LW_OK);
    assert_int_equal(status_within("{{ 'a' * 6 }}", "0", limits), LW_NO_ROOM);
    assert_int_equal(status_within("{{ 'abc' }}{{ 'abc' }}", "0", limits), LW_NO_ROOM);
}

static void steps_end_at_their_limit(void **state)
{
    (void)state;
    const char *source = "{% for a in x %}{{ a }}{% endfor %}";
    lw_jinja_limits limits = lw_jinja_limits_default();
    size_t needed = 1;
    for (limits.steps = 1; status_within(source, "[1,2]", limits) != LW_OK; limits.steps++)
        needed = limits.steps + 1;
    assert_in_range(needed, 5, 50);
    limits.steps = needed - 1;
    assert_int_equal(status_within(source, "[1,2]", limits), LW_NO_ROOM);
    limits.steps = needed;
    assert_int_equal(status_within(source, "[1,2,3]", limits), LW_NO_ROOM);
    /* 10^10 rounds would run for minutes. */
    limits.steps = 100000;
    assert_int_equal(status_within("{% for a in range(99999) %}{% for b in range(99999) %}"
                                   "{% endfor %}{% endfor %}", "0",
                                   limits), LW_NO_ROOM);
}

static void memory_ends_at_its_limit(void **state)
{
    (void)state;
    lw_jinja_limits limits = lw_jinja_limits_default();
    limits.memory_bytes = 1 << 16;
    assert_int_equal(status_within("{{ [1] * 100 }}", "0", limits), LW_OK);
    assert_int_equal(status_within("{{ [1] * 1000000000000 }}", "0", limits), LW_NO_ROOM);
    assert_int_equal(status_within("{% set n = namespace(l=[]) %}{% for i in range(999) %}"
                                   "{% set n.l = n.l + [i] %}"
                                   "{% endfor %}", "0", limits), LW_NO_ROOM);
}

/* depth pairs of brackets around 1 */
static char *nested(size_t depth)
{
    char *text = calloc(1, 2 * depth + 2);
    assert_non_null(text);
    memset(text, '[', depth);
    text[depth] = '1';
    memset(text + depth + 1, ']', depth);
    return text;
}

static void data_depth_ends_at_its_limit(void **state)
{
    (void)state;
    lw_jinja_limits limits = lw_jinja_limits_default();
    limits.depth = 8;
    static const size_t depths[] = { 7, 8, 9 };
    for (size_t i = 0; i < 3; i++) {
        char *json = nested(depths[i]);
        assert_int_equal(status_within("{{ x | tojson }}", json, limits), depths[i] > 8 ? LW_NO_ROOM : LW_OK);
        free(json);
    }
}

static void recursion_ends_at_its_limit(void **state)
{
    (void)state;
    const lw_jinja_limits limits = lw_jinja_limits_default();
    assert_int_equal(status_within("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}"
                                   "{% endmacro %}{{ m(20) }}", "0",
                                   limits), LW_OK);
    assert_int_equal(status_within("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "0", limits),
                     LW_NO_ROOM);
    assert_int_equal(status_within("{% set n = namespace(l=[]) %}{% for i in range(2000) %}"
                                   "{% set n.l = [n.l] %}"
                                   "{% endfor %}{{ n.l }}", "0", limits), LW_NO_ROOM);
    assert_int_equal(status_within("{% set n = namespace() %}{% set n.n = n %}{{ n }}", "0", limits),
                     LW_NO_ROOM);
}

/* "{{" + depth times open + "1" + depth times close + "}}" */
static lw_status parse_nested(const char *open, const char *close, size_t depth)
{
    lw_buf source;
    lw_buf_init(&source, 0);
    lw_status status = lw_buf_append_text(&source, "{{");
    for (size_t i = 0; i < depth && status == LW_OK; i++) status = lw_buf_append_text(&source, open);
    if (status == LW_OK) status = lw_buf_append_text(&source, "1");
    for (size_t i = 0; i < depth && status == LW_OK; i++) status = lw_buf_append_text(&source, close);
    if (status == LW_OK) status = lw_buf_append_text(&source, "}}");
    assert_int_equal(status, LW_OK);
    lw_jinja *program;
    status = lw_jinja_parse(source.bytes, source.count, "test", &program, NULL);
    lw_jinja_free(program);
    lw_buf_deinit(&source);
    return status;
}

static void source_nesting_ends_at_its_limit(void **state)
{
    (void)state;
    assert_int_equal(parse_nested("[", "]", 90), LW_OK);
    assert_int_equal(parse_nested("(", ")", LW_LIMIT_TEMPLATE_DEPTH - 1), LW_OK);
    assert_int_equal(parse_nested("(", ")", LW_LIMIT_TEMPLATE_DEPTH), LW_NO_ROOM);
    assert_int_equal(parse_nested("[", "]", 100000), LW_NO_ROOM);
    assert_int_equal(parse_nested("not ", "", 100000), LW_NO_ROOM);
    assert_int_equal(parse_nested("-", "", 100000), LW_NO_ROOM);
    assert_int_equal(parse_nested("1+", "", 100000), LW_NO_ROOM);
    assert_int_equal(parse_nested("", ".a", 100000), LW_NO_ROOM);
    assert_int_equal(parse_nested("1 if 1 else ", "", 100000), LW_NO_ROOM);
}

static void source_bytes_end_at_their_limit(void **state)
{
    (void)state;
    char *source = malloc(LW_LIMIT_TEMPLATE_BYTES + 1);
    assert_non_null(source);
    memset(source, 'a', LW_LIMIT_TEMPLATE_BYTES + 1);
    lw_jinja *program;
    assert_int_equal(lw_jinja_parse(source, LW_LIMIT_TEMPLATE_BYTES, "test", &program, NULL), LW_OK);
    lw_jinja_free(program);
    assert_int_equal(lw_jinja_parse(source, LW_LIMIT_TEMPLATE_BYTES + 1, "test", &program, NULL), LW_NO_ROOM);
    assert_null(program);
    free(source);
}

/* The locale is made here, as few machines have it; setlocale finds it by the environment. */
static void numbers_keep_their_point_in_any_locale(void **state)
{
    (void)state;
    char folder[] = "/tmp/lanewise-locale-XXXXXX", command[256];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", folder,
             folder);
    const bool is_made = system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
                         setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    char planted[8];
    snprintf(planted, sizeof planted, "%.1f", 0.5);
    rendering r = render("{{ 0.5 }} {{ x }} {{ '1.5' | float + 1 }} {{ 2.25 | round(1) }}", "[1.5]");
    char text[64];
    snprintf(text, sizeof text, "%s", text_of(&r));
    close_rendering(&r);
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    assert_string_equal(text, "0.5 [1.5] 2.5 2.2");
    if (!is_made) {
        print_message("skipped: localedef cannot make de_DE.UTF-8 here\n");
        skip();
    }
    assert_string_equal(planted, "0,5"); /* the locale holds where nothing is done about it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_give_their_text),
        cmocka_unit_test(failures_name_what_is_wrong),
        cmocka_unit_test(origins_follow_each_byte),
        cmocka_unit_test(origins_never_change_the_text),
        cmocka_unit_test(output_ends_at_its_limit),
        cmocka_unit_test(steps_end_at_their_limit),
        cmocka_unit_test(memory_ends_at_its_limit),
        cmocka_unit_test(data_depth_ends_at_its_limit),
        cmocka_unit_test(recursion_ends_at_its_limit),
        cmocka_unit_test(source_nesting_ends_at_its_limit),
        cmocka_unit_test(source_bytes_end_at_their_limit),
        cmocka_unit_test(numbers_keep_their_point_in_any_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
