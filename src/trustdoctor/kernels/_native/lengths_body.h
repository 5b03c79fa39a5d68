/* Centred rows divided by their p-norms: (z - mean z) / ||z - mean z||_p.
 *
 * With b = top - z and m its mean, the largest |b - m| is M = max(m, range - m). So
 * u = |b - m| / M reaches 1, sum u^p lies between 1 and C, and no p is too large: the norm is
 * M (sum u^p)^(1 / p). For a row of equal logits it does not matter.
 *
 * Rows with -inf, and rows whose range is near the largest or the smallest floats, are scored
 * again from a copy without -inf, scaled into the middle of the floats. */

typedef struct {
    double power, temperature;
    REAL *scratch;
} NAME(norm);
#define NORM NAME(norm)

TD_INLINE VEC NAME(load)(const REAL *row, int64_t at, int64_t classes) {
    VEC x = NAME(fill)(-__builtin_inf());
    const int64_t remaining = classes - at;
    if (remaining > 0)
        memcpy(&x, row + at, (remaining < WIDTH ? remaining : WIDTH) * sizeof(REAL));
    return x;
}

TD_INLINE int NAME(is_odd)(REAL range) {
    return range != 0 && !(range >= 4 / LARGE && range <= LARGE);
}

/* Copies the logits above -inf, scaled away from the largest and the smallest floats if
 * there are more than two: rows of two are not divided by their norms. */
TD_INLINE int64_t NAME(tidy)(const REAL *row, int64_t classes, REAL top, REAL *out) {
    const REAL lowest = (REAL)-__builtin_inf();
    REAL least = top;
    int64_t finite = 0;
    for (int64_t j = 0; j < classes; j++)
        if (row[j] != lowest) {
            least = row[j] < least ? row[j] : least;
            out[finite++] = row[j];
        }
    const REAL range = top - least;
    if (finite > 2 && NAME(is_odd)(range))
        for (int64_t j = 0; j < finite; j++) out[j] *= range > 1 ? SHRINK : 1 / SHRINK;
    return finite;
}

/* u^p for u up to 1; n is p if that is an integer up to 6, and else 0. Products are several
 * times faster than exp(p log(u)). */
TD_INLINE VEC NAME(raised)(VEC u, const int n, VEC p) {
    if (n == 0) return NAME(vexp)(p * NAME(vlog)(MAX(NAME(fill)(NORMAL), u)));
    const VEC square = u * u;
    return n == 2   ? square
           : n == 3 ? square * u
           : n == 4 ? square * square
           : n == 5 ? square * square * u
                    : square * square * square;
}

TD_INLINE VEC NAME(size)(VEC x) { return (VEC)((UVEC)x & ((UVEC){0} + (~(UINT)0 >> 1))); }

/* Calls with n as a constant, so that the compiler makes a loop for each p without a
 * branch inside. */
#define RAISED(name, p, ...)                                              \
    (p) == 1   ? NAME(name)(1, __VA_ARGS__)                               \
    : (p) == 2 ? NAME(name)(2, __VA_ARGS__)                               \
    : (p) == 3 ? NAME(name)(3, __VA_ARGS__)                               \
    : (p) == 4 ? NAME(name)(4, __VA_ARGS__)                               \
    : (p) == 5 ? NAME(name)(5, __VA_ARGS__)                               \
    : (p) == 6 ? NAME(name)(6, __VA_ARGS__)                               \
               : NAME(name)(0, __VA_ARGS__)

/* u^p of logits x; mean is m / M. For p = 1 the terms above the mean count twice: their sum
 * equals that of the terms below, and loses no digits if one logit is far below. */
TD_INLINE VEC NAME(shares)(const int n, VEC x, VEC top, VEC mean, VEC inv, VEC p) {
    const VEC far = FMA(x - top, inv, mean);
    if (n == 1) return 2 * MAX(far, NAME(fill)(0));
    const int even = n == 2 || n == 4 || n == 6;
    return NAME(raised)(even ? far : NAME(size)(far), n, p);
}

TD_INLINE VEC NAME(few_powers)(const int n, const VEC *columns, int64_t classes, VEC top,
                               VEC mean, VEC inv, VEC p) {
    const VEC zero = NAME(fill)(0);
    VEC totals[4] = {zero, zero, zero, zero}; /* four sums that do not wait for each other */
    for (int64_t j = 0; j < classes; j++)
        totals[j % 4] += NAME(shares)(n, columns[j], top, mean, inv, p);
    return (totals[0] + totals[1]) + (totals[2] + totals[3]);
}

/* 1 / M. */
TD_INLINE VEC NAME(inv_most)(VEC range, VEC mean) {
    return 1 / MAX(NAME(fill)(1 / LARGE), MAX(range - mean, mean));
}

/* The inverse of the norm, from 1 / M and sum u^p. */
TD_INLINE VEC NAME(inv_length)(VEC inv, VEC total, const NORM *norm) {
    total = MAX(NAME(fill)(1), total);
    if (norm->power == 1) return inv / total;
    return inv * NAME(vexp)(NAME(vlog)(total) * (REAL)(-1 / norm->power));
}

TD_INLINE void NAME(few_lengths)(const VEC *columns, int64_t classes, const NORM *norm,
                                 SUMS *r) {
    if (classes == 2) {
        r->lead = NAME(fill)(__builtin_inf());
        r->range = NAME(fill)(0);
        return;
    }
    const VEC p = NAME(fill)((REAL)norm->power);
    const VEC zero = NAME(fill)(0);
    VEC least = r->top, sums[4] = {zero, zero, zero, zero};
    for (int64_t j = 0; j < classes; j++) {
        least = MIN(columns[j], least);
        sums[j % 4] += r->top - columns[j];
    }
    r->range = r->top - least;
    const VEC sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    const VEC mean = sum / (REAL)classes, inv = NAME(inv_most)(r->range, mean);
    const VEC total = RAISED(few_powers, norm->power, columns, classes, r->top, mean * inv,
                             inv, p);
    const VEC inv_length = NAME(inv_length)(inv, total, norm);
    r->lead = mean * inv_length;
    r->inv_t *= inv_length;
}

/* The sum of LANES lanes, in an order that no WIDTH changes. */
TD_INLINE REAL NAME(fold)(const VEC *lanes) {
    REAL sums[LANES];
    memcpy(sums, lanes, sizeof sums);
#pragma GCC unroll 4
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sums[l] += sums[l + half];
    return sums[0];
}

/* The sum over a row of u^p. */
TD_INLINE REAL NAME(many_powers)(const int n, const REAL *row, int64_t classes, VEC top,
                                   VEC mean, VEC inv, VEC p) {
    const VEC zero = NAME(fill)(0), lowest = NAME(fill)(-__builtin_inf());
    const int64_t whole = classes - classes % (2 * LANES);
    VEC sums[LANES / WIDTH];
    for (int part = 0; part < LANES; part += WIDTH) {
        VEC sum = zero, other_sum = zero, x, y;
        int64_t j = part;
        while (j < whole) { /* in blocks, so that small terms are not lost beside a large sum */
            const int64_t end = j + 16 * LANES < whole ? j + 16 * LANES : whole;
            VEC block_sum = zero, other_block_sum = zero;
            for (; j < end; j += 2 * LANES) {
                memcpy(&x, row + j, sizeof x);
                memcpy(&y, row + j + LANES, sizeof y);
                block_sum += NAME(shares)(n, x, top, mean, inv, p);
                other_block_sum += NAME(shares)(n, y, top, mean, inv, p);
            }
            sum += block_sum, other_sum += other_block_sum;
        }
        for (; j < classes; j += LANES) {
            x = NAME(load)(row, j, classes);
            sum += NAME(pick)(x > lowest, NAME(shares)(n, x, top, mean, inv, p), zero);
        }
        sums[part / WIDTH] = sum + other_sum;
    }
    return NAME(fold)(sums);
}

/* The two largest logits of a row; if it is divided by its norm, also the least, and the sum
 * of the differences from the first logit. */
typedef struct {
    REAL top, second, least, above;
} NAME(ends);

TD_INLINE NAME(ends) NAME(many_ends)(const REAL *row, int64_t classes, const int normed) {
    const VEC lowest = NAME(fill)(-__builtin_inf()), zero = NAME(fill)(0);
    const VEC first = NAME(fill)(classes ? row[0] : 0);
    const int64_t whole = classes - classes % (2 * LANES);
    VEC tops = lowest, seconds = lowest, other_tops = lowest, other_seconds = lowest;
    VEC least = -lowest, x, y, above[2 * LANES / WIDTH];
    for (int k = 0; k < 2 * LANES / WIDTH; k++) above[k] = zero;
    for (int64_t j = 0; j < whole; j += 2 * LANES)
#pragma GCC unroll 8
        for (int k = 0; k < 2 * LANES / WIDTH; k += 2) {
            memcpy(&x, row + j + k * WIDTH, sizeof x);
            memcpy(&y, row + j + k * WIDTH + WIDTH, sizeof y);
            seconds = MAX(MIN(x, tops), seconds);
            tops = MAX(x, tops);
            other_seconds = MAX(MIN(y, other_tops), other_seconds);
            other_tops = MAX(y, other_tops);
            if (normed) {
                least = MIN(MIN(x, y), least);
                above[k] += x - first, above[k + 1] += y - first;
            }
        }
    for (int64_t j = whole, k = 0; j < classes; j += WIDTH, k++) {
        x = NAME(load)(row, j, classes);
        seconds = MAX(MIN(x, tops), seconds);
        tops = MAX(x, tops);
        if (normed) above[k] += NAME(pick)(x > lowest, x - first, zero);
    }
    seconds = MAX(MAX(seconds, other_seconds), MIN(tops, other_tops));
    tops = MAX(tops, other_tops);
    REAL top = tops[0], second = seconds[0];
    for (int l = 1; l < WIDTH; l++) {
        REAL low = tops[l] < top ? tops[l] : top;
        top = tops[l] > top ? tops[l] : top;
        second = low > second ? low : second;
        second = seconds[l] > second ? seconds[l] : second;
    }
    NAME(ends) r = {top, second, least[0], 0};
    if (!normed) return r;
    for (int l = 1; l < WIDTH; l++) r.least = least[l] < r.least ? least[l] : r.least;
    for (int64_t j = whole; j < classes; j++) r.least = row[j] < r.least ? row[j] : r.least;
    for (int k = 0; k < LANES / WIDTH; k++) above[k] += above[k + LANES / WIDTH];
    r.above = NAME(fold)(above);
    return r;
}

/* Returns the inverse of the norm of a row with many classes. */
TD_INLINE VEC NAME(many_lengths)(const REAL *row, int64_t classes, NAME(ends) ends,
                                 const NORM *norm, int entry, SUMS *r) {
    if (classes <= 2) {
        r->lead[entry] = (REAL)__builtin_inf(), r->range[entry] = 0;
        return NAME(fill)(1);
    }
    const VEC tops = NAME(fill)(ends.top), p = NAME(fill)((REAL)norm->power);
    const VEC range = NAME(fill)(ends.top - ends.least);
    const double below = (double)ends.top - row[0] - (double)ends.above / classes;
    const VEC mean = NAME(fill)((REAL)below), inv = NAME(inv_most)(range, mean);
    const REAL total =
        RAISED(many_powers, norm->power, row, classes, tops, mean * inv, inv, p);
    const VEC inv_length = NAME(inv_length)(inv, NAME(fill)(total), norm);
    r->lead[entry] = (mean * inv_length)[0], r->range[entry] = range[0];
    return inv_length;
}
