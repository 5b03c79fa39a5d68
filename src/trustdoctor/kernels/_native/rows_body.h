/* The body of kernels.c for one floating type and instruction set; see there for the
 * notation. A vector has WIDTH entries. */

typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef INT NAME(ivec) __attribute__((vector_size(BYTES)));
typedef UINT NAME(uvec) __attribute__((vector_size(BYTES)));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#define UVEC NAME(uvec)

TD_INLINE VEC NAME(fill)(REAL x) { return (VEC){0} + x; }

TD_INLINE VEC NAME(pick)(IVEC mask, VEC yes, VEC no) {
    return (VEC)((mask & (IVEC)yes) | (~mask & (IVEC)no));
}

/* Two vectors: a fused multiply-add takes four cycles and two can start in each, so one
 * chain alone would leave the units idle. */
typedef struct {
    VEC a, b;
} NAME(pair);
#define PAIR NAME(pair)

TD_INLINE PAIR NAME(fmas)(PAIR x, PAIR y, REAL c) {
    return (PAIR){FMA(x.a, y.a, NAME(fill)(c)), FMA(x.b, y.b, NAME(fill)(c))};
}

TD_INLINE PAIR NAME(less)(PAIR x, PAIR k, REAL c) {
    return (PAIR){FMA(k.a, NAME(fill)(-c), x.a), FMA(k.b, NAME(fill)(-c), x.b)};
}

/* exp(v) for v <= 0, as 2^k exp(r) with k = round(v / log 2). NaN stays NaN, and exp(0) is
 * exactly 1. k + BIAS stands in the last bits of `shifted`, and shifted to the exponent
 * these bits are 2^k, without a conversion to integers. Below EXP_LOWEST they are 0. */
TD_INLINE PAIR NAME(exps)(PAIR v) {
    static const REAL terms[] = EXP_TERMS;
    const VEC lowest = NAME(fill)(EXP_LOWEST), per_bit = NAME(fill)((REAL)1.44269504088896340736);
    const VEC magic = NAME(fill)(ROUND_MAGIC + BIAS);
    const PAIR x = {MAX(lowest, v.a), MAX(lowest, v.b)};
    const PAIR shifted = {FMA(x.a, per_bit, magic), FMA(x.b, per_bit, magic)};
    const PAIR k = {shifted.a - magic, shifted.b - magic};
    const PAIR r = NAME(less)(NAME(less)(x, k, LN2_HI), k, LN2_LO);
    PAIR y = {NAME(fill)(terms[0]), NAME(fill)(terms[0])};
#pragma GCC unroll 16
    for (int i = 1; i < (int)(sizeof terms / sizeof *terms); i++) y = NAME(fmas)(y, r, terms[i]);
    return (PAIR){y.a * (VEC)((UVEC)shifted.a << MANTISSA),
                  y.b * (VEC)((UVEC)shifted.b << MANTISSA)};
}

TD_INLINE VEC NAME(vexp)(VEC v) { return NAME(exps)((PAIR){v, v}).a; }

/* log(x) for normal x > 0, as k log(2) + 2 atanh((m - 1) / (m + 1)) with m between
 * sqrt(1/2) and sqrt(2): the series in odd powers needs half the terms, and log(1) is 0. */
TD_INLINE VEC NAME(vlog)(VEC x) {
    UVEC bits = (UVEC)x;
    const UVEC one = (UVEC)NAME(fill)(1);
    const UVEC half_root = (UVEC)NAME(fill)((REAL)0.70710678118654752440);
    IVEC k = (IVEC)(bits - half_root) >> MANTISSA;
    VEC m = (VEC)(((bits - half_root) & ((one & 0) + (((UINT)1 << MANTISSA) - 1)))
                  + half_root);
    VEC s = (m - 1) / (m + 1);
    VEC t = s * s;
    VEC y = NAME(fill)((REAL)2 / (2 * LOG_TERMS + 1));
#pragma GCC unroll 16
    for (int i = LOG_TERMS - 1; i >= 1; i--) y = FMA(y, t, NAME(fill)((REAL)2 / (2 * i + 1)));
    VEC kf = __builtin_convertvector(k, VEC);
    return FMA(kf, NAME(fill)(LN2_HI), FMA(kf, NAME(fill)(LN2_LO), FMA(s * t, y, 2 * s)));
}

/* The reductions of WIDTH rows, one row per entry. Logits are multiplied by inv_t. If rows
 * are divided by their p-norms, lead is the distance of the top from the mean after that; it
 * is infinite for two classes, whose normed rows are all alike. */
typedef struct {
    VEC top, second, s, s2, f, inv_t, lead, range;
} NAME(sums);
#define SUMS NAME(sums)

TD_INLINE VEC NAME(offset)(VEC top, VEC second) {
    return NAME(pick)(second == NAME(fill)(-__builtin_inf()), top, second);
}

/* Adds a vector to each of two sums. Only the entropy needs f: `weighted` is a constant
 * at every call, so the others do not pay for it. */
TD_INLINE void NAME(add)(PAIR x, VEC offset, VEC inv_t, const int weighted, SUMS *one,
                         SUMS *two) {
    const VEC zero = NAME(fill)(0), lowest = NAME(fill)(EXP_LOWEST);
    const PAIR v = {MIN(zero, (x.a - offset) * inv_t), MIN(zero, (x.b - offset) * inv_t)};
    const PAIR e = NAME(exps)(v);
    one->s += e.a;
    two->s += e.b;
    one->s2 = FMA(e.a, e.a, one->s2);
    two->s2 = FMA(e.b, e.b, two->s2);
    if (weighted) {
        one->f += e.a * MAX(lowest, v.a);
        two->f += e.b * MAX(lowest, v.b);
    }
}

TD_INLINE VEC NAME(column)(const REAL *const *rows, int64_t j) {
    VEC x;
#pragma GCC unroll 16
    for (int l = 0; l < WIDTH; l++) x[l] = rows[l][j];
    return x;
}

#include "lengths_body.h"

TD_INLINE SUMS NAME(few_classes)(const REAL *const *rows, int64_t classes, VEC inv_t,
                                 const int weighted, const NORM *norm) {
    VEC columns[SMALL_C];
    const VEC lowest = NAME(fill)(-__builtin_inf()), zero = NAME(fill)(0);
    /* -1: the top entry is clipped to e = 1 and taken off here. */
    SUMS r = {lowest, lowest, zero - 1, zero - 1, zero, inv_t, zero, zero};
    for (int64_t j = 0; j < classes; j++) {
        VEC x = columns[j] = NAME(column)(rows, j);
        r.second = MAX(MIN(x, r.top), r.second);
        r.top = MAX(x, r.top);
    }
    if (norm) NAME(few_lengths)(columns, classes, norm, &r);
    VEC offset = NAME(offset)(r.top, r.second);
    SUMS unused = r;
    int64_t j = 0;
    for (; j + 1 < classes; j += 2)
        NAME(add)((PAIR){columns[j], columns[j + 1]}, offset, r.inv_t, weighted, &r, &r);
    if (j < classes)
        NAME(add)((PAIR){columns[j], columns[j]}, offset, r.inv_t, weighted, &r, &unused);
    return r;
}

/* One row with many classes; the result goes to one entry of r.
 *
 * Its sums run in 2 * LANES lanes whatever WIDTH is, one part of the lanes after another
 * where vectors are narrower: every instruction set adds up in the same order. */
TD_INLINE void NAME(many_classes)(const REAL *row, int64_t classes, VEC inv_t,
                                  const int weighted, const NORM *norm, int entry, SUMS *r) {
    const VEC zero = NAME(fill)(0);
    const int64_t whole = classes - classes % (2 * LANES);
    const NAME(ends) ends = NAME(many_ends)(row, classes, norm != 0);
    const REAL top = ends.top, second = ends.second;
    VEC x, y;
    if (norm) inv_t *= NAME(many_lengths)(row, classes, ends, norm, entry, r);
    VEC offset = NAME(offset)(NAME(fill)(top), NAME(fill)(second));
    double sum = -1, sum2 = -1, weighted_sum = 0; /* -1 as in few_classes */
    for (int part = 0; part < LANES; part += WIDTH) {
        SUMS one = {.s = zero, .s2 = zero, .f = zero}, two = one, unused = one;
        int64_t j = part;
        for (; j < whole; j += 2 * LANES) {
            memcpy(&x, row + j, sizeof x);
            memcpy(&y, row + j + LANES, sizeof y);
            NAME(add)((PAIR){x, y}, offset, inv_t, weighted, &one, &two);
        }
        for (; j < classes; j += LANES) {
            x = NAME(load)(row, j, classes);
            NAME(add)((PAIR){x, x}, offset, inv_t, weighted, &one, &unused);
        }
        one.s += two.s, one.s2 += two.s2, one.f += two.f;
        for (int l = 0; l < WIDTH; l++)
            sum += one.s[l], sum2 += one.s2[l], weighted_sum += one.f[l];
    }
    if (norm) r->inv_t[entry] = inv_t[0];
    r->top[entry] = top, r->second[entry] = second;
    r->s[entry] = (REAL)sum, r->s2[entry] = (REAL)sum2, r->f[entry] = (REAL)weighted_sum;
}

/* The same for a row that is divided by its p-norm, in one copy for all callers: inlined,
 * it would be several times the size of everything else. */
TD_ENTRY void NAME(many_normed)(const REAL *row, int64_t classes, const NORM *norm, int entry,
                                SUMS *r) {
    const VEC inv_t = NAME(fill)((REAL)(1 / norm->temperature));
    NAME(many_classes)(row, classes, inv_t, 0, norm, entry, r);
}

/* The score of each row out of its reductions, in the notation of kernels.c:
 *
 *     beta    u2 + log(S)
 *     alpha   u2 + log(S (2 + A - E S2 / S) / (1 + Q))
 *     msp     u2 + log(S / (1 + A)),                       the log of 1 - p
 *     entropy u2 + log(S (phi + k / y)),                   the log of the entropy, with
 *             y = 1 + A, phi = log(y) / A, k = -u2 - F / S
 *
 * u2 stays outside the logarithm, so that certain rows do not underflow. */
TD_INLINE VEC NAME(finish)(SUMS r, VEC t, int kind) {
    if (kind == MAX_LOGIT) return -r.top * r.inv_t;
    VEC u2 = (r.second - r.top) * r.inv_t;
    if (kind == MARGIN) return u2;
    VEC e = NAME(vexp)(u2), a = e * r.s;
    if (kind == ENERGY) return -(r.top + t * NAME(vlog)(1 + a));
    IVEC certain = r.s == 0;
    VEC s = NAME(pick)(certain, NAME(fill)(1), r.s), x = s;
    if (kind == ALPHA) x = s * (2 + a - e * (r.s2 / s)) / (1 + e * e * r.s2);
    if (kind == MSP || kind == PNORM) x = s / (1 + a);
    if (kind == ENTROPY) {
        VEC y = 1 + a, d = y - 1;
        IVEC tiny = d == 0;
        VEC phi = NAME(vlog)(y) / NAME(pick)(tiny, NAME(fill)(1), d);
        phi = NAME(pick)(tiny, NAME(fill)(1), phi);
        VEC k = NAME(pick)(certain, NAME(fill)(0), -u2) - r.f / s;
        x = s * (phi + k / y);
    }
    VEC doubt = u2 + NAME(vlog)(x);
    if (kind == PNORM) doubt = NAME(pick)(r.lead < NAME(fill)(__builtin_inf()), -r.lead, doubt);
    return NAME(pick)(certain, NAME(fill)(-__builtin_inf()), doubt);
}

TD_INLINE int64_t NAME(score_rows)(const REAL *z, int64_t rows, int64_t classes,
                                   double temperature, const int *kinds, int n_kinds,
                                   const int weighted, const NORM *norm, REAL *out) {
    const VEC t = NAME(fill)((REAL)temperature), inv_t = NAME(fill)((REAL)(1 / temperature));
    const REAL inf = (REAL)__builtin_inf();
    int64_t bad = -1;
    for (int64_t i = 0; i < rows; i += WIDTH) {
        const int here = rows - i < WIDTH ? (int)(rows - i) : WIDTH;
        const REAL *row[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = z + (i + (l < here ? l : here - 1)) * classes;
        SUMS r = {.inv_t = inv_t};
        if (classes <= SMALL_C)
            r = NAME(few_classes)(row, classes, inv_t, weighted, norm);
        else
            for (int l = 0; l < WIDTH; l++)
                if (l < here && norm)
                    NAME(many_normed)(row[l], classes, norm, l, &r);
                else if (l < here)
                    NAME(many_classes)(row[l], classes, inv_t, weighted, 0, l, &r);
                else
                    r.s[l] = r.s2[l] = 1;
        for (int l = 0; norm && l < here; l++)
            if (NAME(is_odd)(r.range[l])) {
                const int64_t left = NAME(tidy)(row[l], classes, r.top[l], norm->scratch);
                NAME(many_normed)(norm->scratch, left, norm, l, &r);
            }
        for (int k = 0; k < n_kinds; k++) {
            VEC score = NAME(finish)(r, t, kinds[k]);
            memcpy(out + k * rows + i, &score, here * sizeof(REAL));
        }
        for (int l = 0; l < here; l++)
            if (bad < 0 && !(r.top[l] > -inf && r.top[l] < inf && r.s[l] >= 0)) bad = i + l;
    }
    return bad;
}

/* Scores the rows of z (rows x classes, contiguous) by several kinds at once, kind k
 * into out + k * rows. If power is not 0, each row is divided by its p-norm first, and
 * scratch has room for a row. Returns -1, or the first row that holds NaN, +inf, or nothing
 * but -inf. */
TD_ENTRY int64_t NAME(score)(const REAL *z, int64_t rows, int64_t classes,
                              double temperature, double power, const int *kinds,
                              int n_kinds, REAL *scratch, REAL *out) {
    if (power) {
        const NORM norm = {power, temperature, scratch};
        return NAME(score_rows)(z, rows, classes, temperature, kinds, n_kinds, 0, &norm, out);
    }
    for (int k = 0; k < n_kinds; k++)
        if (kinds[k] == ENTROPY)
            return NAME(score_rows)(z, rows, classes, temperature, kinds, n_kinds, 1, 0, out);
    return NAME(score_rows)(z, rows, classes, temperature, kinds, n_kinds, 0, 0, out);
}

/* The first largest entry of each row. */
TD_ENTRY void NAME(argmax)(const REAL *z, int64_t rows, int64_t classes, int64_t *out) {
    int64_t i = 0;
    for (; classes <= SMALL_C && i + WIDTH <= rows; i += WIDTH) {
        const REAL *row[WIDTH];
        for (int l = 0; l < WIDTH; l++) row[l] = z + (i + l) * classes;
        VEC top = NAME(column)(row, 0);
        IVEC at = {0};
        for (int64_t j = 1; j < classes; j++) {
            VEC x = NAME(column)(row, j);
            IVEC more = x > top, here = ((IVEC){0}) + (INT)j;
            at = (more & here) | (~more & at);
            top = NAME(pick)(more, x, top);
        }
        for (int l = 0; l < WIDTH; l++) out[i + l] = at[l];
    }
    for (; i < rows; i++) {
        const REAL *row = z + i * classes;
        VEC most = NAME(fill)(-__builtin_inf());
        for (int64_t j = 0; j < classes; j += WIDTH)
            most = MAX(NAME(load)(row, j, classes), most);
        REAL top = most[0];
        for (int l = 1; l < WIDTH; l++) top = most[l] > top ? most[l] : top;
        int64_t at = 0;
        while (at < classes - 1 && row[at] != top) at++;
        out[i] = at;
    }
}
