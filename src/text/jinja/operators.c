/* Arithmetic, comparison, attribute, item and slice, with Python's meaning. */
#include "text/jinja/run.h"

#include "text/jinja/lexer.h"

#include <math.h>

static const int64_t EXACT_DOUBLE_MAX = (int64_t)1 << 53; /* each integer up to it is a double */

static lw_status too_big(const jrun *run)
{
    return lw__jinja_fail(run, LW_UNSUPPORTED, "an integer beyond 64 bits is not supported");
}

static lw_status bad_operands(const jrun *run, const char *op, jvalue a, jvalue b)
{
    if (a.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, a);
    if (b.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, b);
    return lw__jinja_fail(run, LW_BAD_INPUT, "unsupported operands for %s: '%s' and '%s'", op,
                          lw__jinja_kind_name(a),
                          lw__jinja_kind_name(b));
}

static bool power_integers(int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    if (base == 1 || base == 0 || base == -1) {
        *out = base == -1 ? (exponent % 2 == 0 ? 1 : -1) : base == 0 && exponent == 0 ? 1 : base;
        return true;
    }
    for (int64_t i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(*out, base, out)) return false;
    return true;
}

static lw_status divide_integers(jrun *run, int op, int64_t a, int64_t b, int64_t *out)
{
    if (b == 0) return lw__jinja_fail(run, LW_BAD_INPUT, "division by zero");
    if (b == -1) {
        *out = 0;
        if (op == '%') return LW_OK;
        return __builtin_sub_overflow((int64_t)0, a, out) ? too_big(run) : LW_OK;
    }
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    *out = op == '%' ? rest : quotient;
    return LW_OK;
}

static lw_status binary_integers(jrun *run, int op, int64_t a, int64_t b, int64_t *out)
{
    bool overflows;
    switch (op) {
    case '+': overflows = __builtin_add_overflow(a, b, out); break;
    case '-': overflows = __builtin_sub_overflow(a, b, out); break;
    case '*': overflows = __builtin_mul_overflow(a, b, out); break;
    case JOP('*', '*'): overflows = !power_integers(a, b, out); break;
    default: return divide_integers(run, op, a, b, out);
    }
    return overflows ? too_big(run) : LW_OK;
}

static lw_status power_reals(jrun *run, double a, double b, double *out)
{
    if (a == 0.0 && b < 0.0) return lw__jinja_fail(run, LW_BAD_INPUT, "zero to a negative power");
    if (a < 0.0 && isfinite(a) && isfinite(b) && floor(b) != b)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "complex numbers are not supported");
    *out = pow(a, b);
    if (isinf(*out) && isfinite(a) && isfinite(b))
        return lw__jinja_fail(run, LW_BAD_INPUT, "a power overflows");
    return LW_OK;
}

/* Python's float modulo and floor division: the rest has the divisor's sign. */
static void divmod_reals(double a, double b, double *quotient, double *rest)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0.0) {
        if ((b < 0.0) != (mod < 0.0)) {
            mod += b;
            div -= 1.0;
        }
    } else {
        mod = copysign(0.0, b);
    }
    *rest = mod;
    if (div != 0.0) {
        *quotient = floor(div);
        if (div - *quotient > 0.5) *quotient += 1.0;
    } else {
        *quotient = copysign(0.0, a / b);
    }
}

static lw_status binary_reals(jrun *run, int op, double a, double b, double *out)
{
    double other;
    if ((op == '/' || op == '%' || op == JOP('/', '/')) && b == 0.0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "division by zero");
    switch (op) {
    case '+': *out = a + b; break;
    case '-': *out = a - b; break;
    case '*': *out = a * b; break;
    case '/': *out = a / b; break;
    case '%': divmod_reals(a, b, &other, out); break;
    case JOP('/', '/'): divmod_reals(a, b, out, &other); break;
    default: return power_reals(run, a, b, out);
    }
    return LW_OK;
}

static lw_status binary_numbers(jrun *run, int op, jvalue a, jvalue b, jvalue *out)
{
    const uint8_t origin = a.origin | b.origin;
    const bool is_whole = value_is_integer(a) && value_is_integer(b);
    const bool gives_real = op == '/' || (op == JOP('*', '*') && is_whole && value_integer(b) < 0);
    if (is_whole && !gives_real) {
        *out = value_int(0, origin);
        return binary_integers(run, op, value_integer(a), value_integer(b), &out->as.integer);
    }
    if (is_whole) {
        const int64_t x = value_integer(a), y = value_integer(b);
        if (x > EXACT_DOUBLE_MAX || x < -EXACT_DOUBLE_MAX || y > EXACT_DOUBLE_MAX || y < -EXACT_DOUBLE_MAX)
            return lw__jinja_fail(run, LW_UNSUPPORTED, "division of integers beyond 2**53 is not supported");
    }
    *out = value_float(0.0, origin);
    return binary_reals(run, op, value_real(a), value_real(b), &out->as.real);
}

static lw_status repeat_text(jrun *run, lw_text text, int64_t times, jvalue *out)
{
    jbuild build = { .run = run };
    for (int64_t i = 0; i < times && text.count > 0; i++) TRY(lw__jinja_put(&build, text));
    *out = value_text(lw__jinja_built(&build));
    return LW_OK;
}

static lw_status repeat_list(jrun *run, jvalue list, int64_t times, jvalue *out)
{
    const size_t count = list.as.list->count;
    const size_t whole = times > 0 ? (size_t)times : 0;
    size_t room;
    if (__builtin_mul_overflow(count, whole, &room)) room = SIZE_MAX;
    TRY(lw__jinja_list(run, list.kind, room, out));
    for (size_t i = 0; i < room; i++) {
        TRY(lw__jinja_step(run, 0));
        lw__jinja_list_push(out, list.as.list->items[i % count]);
    }
    return LW_OK;
}

static lw_status repeat(jrun *run, jvalue a, jvalue b, jvalue *out)
{
    const jvalue whole = value_is_integer(a) ? b : a;
    const jvalue times = value_is_integer(a) ? a : b;
    if (!value_is_integer(times)) return bad_operands(run, "*", a, b);
    if (whole.kind == JK_LIST || whole.kind == JK_TUPLE) {
        TRY(repeat_list(run, whole, value_integer(times), out));
    } else if (whole.kind == JK_STRING) {
        TRY(repeat_text(run, whole.as.text, value_integer(times), out));
        out->is_markup = whole.is_markup;
    } else {
        return bad_operands(run, "*", a, b);
    }
    return LW_OK;
}

static lw_status add_texts(jrun *run, jvalue a, jvalue b, jvalue *out)
{
    lw_text first = a.as.text, second = b.as.text, both;
    if (a.is_markup && !b.is_markup) TRY(lw__jinja_escape(run, second, &second));
    if (b.is_markup && !a.is_markup) TRY(lw__jinja_escape(run, first, &first));
    TRY(lw__jinja_concat(run, first, second, &both));
    *out = value_text(both);
    out->is_markup = a.is_markup || b.is_markup;
    return LW_OK;
}

static lw_status add_lists(jrun *run, jvalue a, jvalue b, jvalue *out)
{
    TRY(lw__jinja_list(run, a.kind, a.as.list->count + b.as.list->count, out));
    TRY(lw__jinja_step(run, (a.as.list->count + b.as.list->count) * sizeof(jvalue)));
    for (size_t i = 0; i < a.as.list->count; i++) lw__jinja_list_push(out, a.as.list->items[i]);
    for (size_t i = 0; i < b.as.list->count; i++) lw__jinja_list_push(out, b.as.list->items[i]);
    return LW_OK;
}

lw_status lw__jinja_binary(jrun *run, int op, jvalue a, jvalue b, jvalue *out)
{
    const char name[3] = { (char)(op & 0xFF), (char)(op >> 8), '\0' };
    if (value_is_number(a) && value_is_number(b)) return binary_numbers(run, op, a, b, out);
    if (op == '+' && a.kind == JK_STRING && b.kind == JK_STRING) return add_texts(run, a, b, out);
    if (op == '+' && a.kind == b.kind && (a.kind == JK_LIST || a.kind == JK_TUPLE))
        return add_lists(run, a, b, out);
    if (op == '*') return repeat(run, a, b, out);
    if (op == '%' && a.kind == JK_STRING)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "formatting with %% is not supported");
    if (op == '-' && a.kind == JK_VIEW)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "set operations are not supported");
    return bad_operands(run, name, a, b);
}

lw_status lw__jinja_negate(jrun *run, jvalue a, bool is_minus, jvalue *out)
{
    if (!value_is_number(a)) return bad_operands(run, is_minus ? "unary -" : "unary +", a, a);
    if (a.kind == JK_FLOAT) {
        *out = value_float(is_minus ? -a.as.real : a.as.real, a.origin);
        return LW_OK;
    }
    *out = value_int(value_integer(a), a.origin);
    if (is_minus && __builtin_sub_overflow((int64_t)0, value_integer(a), &out->as.integer))
        return too_big(run);
    return LW_OK;
}

lw_status lw__jinja_compare(jrun *run, int op, jvalue a, jvalue b, bool *out)
{
    if (op == JOP_IN || op == JOP_NOT_IN) {
        TRY(lw__jinja_contains(run, b, a, out));
        *out = *out == (op == JOP_IN);
        return LW_OK;
    }
    if (op == JOP('=', '=') || op == JOP('!', '=')) {
        TRY(lw__jinja_equal(run, a, b, out));
        *out = *out == (op == JOP('=', '='));
        return LW_OK;
    }
    int order;
    TRY(lw__jinja_order(run, a, b, &order));
    switch (op) {
    case '<': *out = order == -1; break;
    case '>': *out = order == 1; break;
    case JOP('<', '='): *out = order == -1 || order == 0; break;
    default: *out = order == 1 || order == 0; break;
    }
    return LW_OK;
}

/* A method or other attribute of the value's own type, which goes before an entry of the same name. */
static lw_status own_attribute(jrun *run, jvalue owner, lw_text name, jvalue *out, bool *is_there)
{
    bool is_safe = false;
    *is_there = false;
    if (owner.kind == JK_LOOP) return lw__jinja_loop_attribute(run, owner.as.loop, name, out, is_there);
    if (owner.kind == JK_NAMESPACE) {
        const jvalue *found = lw__jinja_dict_find(owner.as.dict, name);
        *is_there = found != NULL;
        if (found != NULL) *out = *found;
        return LW_OK;
    }
    if (!lw__jinja_has_method(owner.kind, name, &is_safe)) return LW_OK;
    *is_there = true;
    if (is_safe && owner.kind != JK_STRING && owner.kind != JK_DICT && owner.kind != JK_LIST &&
        owner.kind != JK_TUPLE)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "attribute '%.*s' of a '%s' is not supported",
                              (int)name.count,
                              name.bytes, lw__jinja_kind_name(owner));
    if (!is_safe) {
        TRY(lw__jinja_undefined(run, lw__jinja_kind_name(owner), name, out));
        jundefined *undefined;
        TRY(lw__jinja_take(run, 1, sizeof *undefined, &undefined));
        *undefined = *out->as.undefined;
        undefined->is_unsafe = true;
        out->as.undefined = undefined;
        return LW_OK;
    }
    jmethod *method;
    TRY(lw__jinja_take(run, 1, sizeof *method, &method));
    *method = (jmethod){ .owner = owner, .name = name };
    *out = (jvalue){ .kind = JK_METHOD, .origin = owner.origin, .as.method = method };
    return LW_OK;
}

static lw_status character_at(jrun *run, lw_text text, int64_t index, jvalue *out, bool *is_there)
{
    const int64_t count = (int64_t)lw__jinja_length(text);
    TRY(lw__jinja_step(run, text.count));
    if (index < 0) index += count;
    *is_there = index >= 0 && index < count;
    if (!*is_there) return LW_OK;
    size_t at = 0;
    for (int64_t i = 0; i < index; i++) at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
    *out = value_text(text_cut(text, at, at + lw__jinja_char_bytes(text.bytes + at, text.count - at)));
    return LW_OK;
}

/* owner[key] of a container; absent leaves *is_there false. */
static lw_status own_item(jrun *run, jvalue owner, jvalue key, jvalue *out, bool *is_there)
{
    *is_there = false;
    if (owner.kind == JK_DICT) {
        if (key.kind == JK_LIST || key.kind == JK_DICT) return LW_OK;
        const jvalue *found;
        TRY(lw__jinja_dict_get(run, owner, key, &found));
        *is_there = found != NULL;
        if (found != NULL) *out = *found;
        return LW_OK;
    }
    if (!value_is_integer(key)) return LW_OK;
    int64_t index = value_integer(key);
    if (owner.kind == JK_STRING) {
        TRY(character_at(run, owner.as.text, index, out, is_there));
        if (*is_there) out->is_markup = owner.is_markup;
        return LW_OK;
    }
    if (owner.kind != JK_LIST && owner.kind != JK_TUPLE && owner.kind != JK_RANGE) return LW_OK;
    if (index < 0) index += (int64_t)owner.as.list->count;
    *is_there = index >= 0 && index < (int64_t)owner.as.list->count;
    if (*is_there) *out = owner.as.list->items[index];
    return LW_OK;
}

lw_status lw__jinja_attribute(jrun *run, jvalue owner, lw_text name, jvalue *out)
{
    if (owner.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, owner);
    bool is_there;
    TRY(own_attribute(run, owner, name, out, &is_there));
    if (is_there) return LW_OK;
    TRY(own_item(run, owner, value_text(name), out, &is_there));
    return is_there ? LW_OK : lw__jinja_undefined(run, lw__jinja_kind_name(owner), name, out);
}

lw_status lw__jinja_item(jrun *run, jvalue owner, jvalue key, jvalue *out)
{
    if (owner.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, owner);
    bool is_there;
    TRY(own_item(run, owner, key, out, &is_there));
    if (!is_there && key.kind == JK_STRING) TRY(own_attribute(run, owner, key.as.text, out, &is_there));
    if (is_there) return LW_OK;
    lw_text name = { .bytes = "?", .count = 1 };
    if (key.kind == JK_STRING || value_is_number(key)) TRY(lw__jinja_text(run, key, &name));
    return lw__jinja_undefined(run, lw__jinja_kind_name(owner), name, out);
}

/* begin, step and count of the chosen places, as Python's slice.indices gives them. */
typedef struct jspan {
    int64_t begin, step;
    size_t count;
} jspan;

static int64_t clamp(int64_t index, int64_t count, int64_t low, int64_t high)
{
    if (index < 0) index += count;
    return index < low ? low : index > high ? high : index;
}

static lw_status read_span(jrun *run, const jvalue parts[static 3], int64_t count, jspan *out)
{
    const int64_t step = parts[2].kind == JK_NONE ? 1 : value_integer(parts[2]);
    if (step == 0) return lw__jinja_fail(run, LW_BAD_INPUT, "a slice step of zero");
    if (step < -INT64_MAX)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "a slice step of -2**63 is not supported");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    const int64_t begin = parts[0].kind == JK_NONE ? (step < 0 ? high : low)
                                                   : clamp(value_integer(parts[0]), count, low, high);
    const int64_t end = parts[1].kind == JK_NONE ? (step < 0 ? low : high)
                                                 : clamp(value_integer(parts[1]), count, low, high);
    int64_t chosen = 0;
    if (step > 0 && end > begin) chosen = (end - begin - 1) / step + 1;
    if (step < 0 && begin > end) chosen = (begin - end - 1) / -step + 1;
    *out = (jspan){ .begin = begin, .step = step, .count = (size_t)chosen };
    return LW_OK;
}

/* The byte where code point `index` begins. */
static size_t byte_of(lw_text text, int64_t index)
{
    size_t at = 0;
    for (int64_t i = 0; i < index; i++) at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
    return at;
}

static lw_status slice_text(jrun *run, jvalue owner, const jvalue parts[static 3], jvalue *out)
{
    const lw_text text = owner.as.text;
    jspan span;
    TRY(lw__jinja_step(run, text.count));
    TRY(read_span(run, parts, (int64_t)lw__jinja_length(text), &span));
    if (span.count == 0 || span.step == 1) {
        const size_t begin = span.count == 0 ? 0 : byte_of(text, span.begin);
        const size_t end = span.count == 0 ? 0 : byte_of(text, span.begin + (int64_t)span.count);
        *out = value_text(text_cut(text, begin, end));
    } else {
        jbuild build = { .run = run };
        jvalue *items;
        size_t count;
        TRY(lw__jinja_items(run, owner, &items, &count));
        for (size_t i = 0; i < span.count; i++)
            TRY(lw__jinja_put(&build, items[span.begin + (int64_t)i * span.step].as.text));
        *out = value_text(lw__jinja_built(&build));
    }
    out->is_markup = owner.is_markup;
    return LW_OK;
}

lw_status lw__jinja_slice(jrun *run, jvalue owner, const jvalue parts[static 3], jvalue *out)
{
    if (owner.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, owner);
    bool is_sliceable = owner.kind == JK_STRING || owner.kind == JK_LIST || owner.kind == JK_TUPLE;
    for (int i = 0; i < 3; i++) is_sliceable &= parts[i].kind == JK_NONE || value_is_integer(parts[i]);
    if (owner.kind == JK_RANGE)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "slices of a range are not supported");
    if (!is_sliceable)
        return lw__jinja_undefined(run, lw__jinja_kind_name(owner), text_literal("slice"), out);
    if (owner.kind == JK_STRING) return slice_text(run, owner, parts, out);
    jspan span;
    TRY(read_span(run, parts, (int64_t)owner.as.list->count, &span));
    TRY(lw__jinja_list(run, owner.kind, span.count, out));
    TRY(lw__jinja_step(run, span.count * sizeof(jvalue)));
    for (size_t i = 0; i < span.count; i++)
        lw__jinja_list_push(out, owner.as.list->items[span.begin + (int64_t)i * span.step]);
    out->origin |= owner.origin;
    return LW_OK;
}
