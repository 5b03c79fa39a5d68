/* Scores without NaN: sorting them, ordering rows by them, placing some among others. The
 * key of a score is an unsigned integer of the same order, as td_key has it. */
static inline UINT PLAIN(key)(UINT bits) {
    const int sign = 8 * sizeof(REAL) - 1;
    return bits ^ (-(bits >> sign) | (UINT)1 << sign);
}

typedef struct __attribute__((packed)) {
    UINT key;
    uint32_t at;
} PLAIN(record);

#define ELEMENT UINT
#define KEY(x) PLAIN(key)(x)
#include "radix_body.h"

#define ELEMENT PLAIN(record)
#define KEY(x) ((x).key)
#include "radix_body.h"

/* Sorts n scores; `other` is as large as `data`. Returns whichever holds the result. */
REAL *PLAIN(td_sort)(REAL *data, REAL *other, int64_t n) {
    return (REAL *)JOINED_TWO(radix_sort, UINT)((UINT *)data, (UINT *)other, n);
}

/* The order of those of n scores that are from `low` up to, not including, `high` (NaN:
 * no end), the earlier of equals first: `count` places into `out`. `space` has room for
 * 2 * (count + 1) records. */
void PLAIN(td_order)(const REAL *data, int64_t n, double low, double high, int64_t count,
                     PLAIN(record) *space, int64_t *out) {
    const REAL first = (REAL)low, end = (REAL)high;
    for (int64_t i = 0, at = 0; i < n; i++) {
        const REAL x = data[i] + (REAL)0; /* -0 becomes 0: they are equal scores */
        UINT bits;
        memcpy(&bits, &x, sizeof bits);
        /* Written always, kept only if in range: no branch to predict. */
        space[at] = (PLAIN(record)){PLAIN(key)(bits), (uint32_t)i};
        at += (x >= first) & !(x >= end);
    }
    const PLAIN(record) *sorted =
        JOINED_TWO(radix_sort, PLAIN(record))(space, space + count + 1, count);
    for (int64_t i = 0; i < count; i++) out[i] = sorted[i].at;
}

/* Copies n scores to two arrays: those that are not marked, and those that are. Each score
 * is written to both, and one of the two advances: marks are random, and a mispredicted
 * branch costs more than a store. So each array has room for one more. */
void PLAIN(td_split)(const REAL *data, const uint8_t *marked, int64_t n, REAL *no, REAL *yes) {
    for (int64_t i = 0; i < n; i++) {
        const int is = marked[i] != 0;
        *no = *yes = data[i];
        no += !is, yes += is;
    }
}

/* How many of n sorted scores are below x. */
static inline int64_t PLAIN(count_below)(const REAL *data, int64_t n, REAL x) {
    int64_t low = 0;
    while (low < n) {
        const int64_t middle = low + (n - low) / 2;
        if (data[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* How many own scores the merge of own and others has passed after `steps` steps. */
static inline int64_t PLAIN(passed)(const REAL *own, int64_t n, const REAL *others,
                                    int64_t m, int64_t steps) {
    int64_t low = steps > m ? steps - m : 0, high = steps < n ? steps : n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (others[steps - middle - 1] < own[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* For each of n sorted scores, how many of m sorted others are below it, and how many
 * are at most it, by merging. Which array advances is arithmetic and not a branch, as the
 * processor could not predict it. Each step waits for the last one, so four parts of the
 * merge, found by binary search, run side by side and fill the wait. */
void PLAIN(td_place)(const REAL *own, int64_t n, const REAL *others, int64_t m,
                     int64_t *below, int64_t *through) {
    enum { PARTS = 4 };
    int64_t inside = n; /* those above all others need no merge */
    while (inside && (m == 0 || own[inside - 1] > others[m - 1])) below[--inside] = m;
    const int64_t before = inside ? PLAIN(count_below)(others, m, own[0]) : 0;
    const int64_t last = inside ? PLAIN(count_below)(others, m, own[inside - 1]) : 0;
    const int64_t steps = inside + last - before;
    int64_t at[PARTS], by[PARTS], first[PARTS];
    for (int p = 0; p < PARTS; p++) {
        at[p] = first[p] = PLAIN(passed)(own, inside, others + before, last - before,
                                         steps * p / PARTS);
        by[p] = before + steps * p / PARTS - at[p];
    }
#define STEP(p)                                        \
    const int64_t less_##p = others[by[p]] < own[at[p]]; \
    below[at[p]] = by[p];                              \
    by[p] += less_##p, at[p] += 1 - less_##p
    for (int64_t step = 0; step < steps / PARTS; step++) {
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
    }
#undef STEP
    for (int p = 0; p < PARTS; p++) { /* where parts meet, and what is left over */
        const int64_t end = p + 1 < PARTS ? first[p + 1] + 1 : inside;
        for (; at[p] < end && at[p] < inside; at[p]++)
            below[at[p]] = by[p] += PLAIN(count_below)(others + by[p], m - by[p], own[at[p]]);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t end = below[i];
        if (i && own[i] == own[i - 1]) end = through[i - 1];
        else while (end < m && others[end] == own[i]) end++;
        through[i] = end;
    }
}
