/* Sorting scores without NaN, ordering rows by them, and counting those below others. The
 * key of a score is an unsigned integer that sorts as the score does, as in td_key. */
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

/* Sorts n scores; `buffer` is as large as `data`. Returns the one that holds the result. */
REAL *PLAIN(td_sort)(REAL *data, REAL *buffer, int64_t n) {
    return (REAL *)JOINED_TWO(radix_sort, UINT)((UINT *)data, (UINT *)buffer, n);
}

/* Writes the row numbers of the `count` scores in [low, high) to `out`, in ascending order of
 * the scores and stable; a `high` of NaN means no upper end. `space` has room for
 * 2 * (count + 1) records. */
void PLAIN(td_order)(const REAL *data, int64_t n, double low, double high, int64_t count,
                     PLAIN(record) *space, int64_t *out) {
    const REAL first = (REAL)low, end = (REAL)high;
    for (int64_t i = 0, at = 0; i < n; i++) {
        const REAL x = data[i] + (REAL)0; /* -0 becomes 0: they are equal scores */
        UINT bits;
        memcpy(&bits, &x, sizeof bits);
        /* Written always, and overwritten unless in range: no branch to predict. */
        space[at] = (PLAIN(record)){PLAIN(key)(bits), (uint32_t)i};
        at += (x >= first) & !(x >= end);
    }
    const PLAIN(record) *sorted =
        JOINED_TWO(radix_sort, PLAIN(record))(space, space + count + 1, count);
    for (int64_t i = 0; i < count; i++) out[i] = sorted[i].at;
}

/* Copies n scores to two arrays, the unmarked and the marked ones. Each score is written to
 * both, and one of the two advances: marks are random, and a mispredicted branch costs more
 * than a store. So each array has room for one more. */
void PLAIN(td_split)(const REAL *data, const uint8_t *marked, int64_t n, REAL *unmarked,
                     REAL *selected) {
    for (int64_t i = 0; i < n; i++) {
        const int is_marked = marked[i] != 0;
        *unmarked = *selected = data[i];
        unmarked += !is_marked, selected += is_marked;
    }
}

/* The number of n sorted scores that are below x. */
static inline int64_t PLAIN(count_below)(const REAL *data, int64_t n, REAL x) {
    int64_t low = 0;
    while (low < n) {
        const int64_t middle = low + (n - low) / 2;
        if (data[middle] < x) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* The number of scores that the merge of scores and reference has taken after `steps`. */
static inline int64_t PLAIN(merged)(const REAL *scores, int64_t n, const REAL *reference,
                                    int64_t m, int64_t steps) {
    int64_t low = steps > m ? steps - m : 0, high = steps < n ? steps : n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (reference[steps - middle - 1] < scores[middle]) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* For each of n sorted scores, the numbers of m sorted reference scores below it and at most
 * it, by merging. Which array advances is arithmetic, not a branch, since the processor could
 * not predict it. Each step waits for the last one, so four parts of the merge, found by
 * binary search, run side by side and fill the wait. */
void PLAIN(td_place)(const REAL *scores, int64_t n, const REAL *reference, int64_t m,
                     int64_t *below, int64_t *through) {
    enum { PARTS = 4 };
    int64_t inside = n; /* scores above the whole reference need no merge */
    while (inside && (m == 0 || scores[inside - 1] > reference[m - 1])) below[--inside] = m;
    const int64_t before = inside ? PLAIN(count_below)(reference, m, scores[0]) : 0;
    const int64_t last = inside ? PLAIN(count_below)(reference, m, scores[inside - 1]) : 0;
    const int64_t steps = inside + last - before;
    int64_t at[PARTS], by[PARTS], first[PARTS];
    for (int p = 0; p < PARTS; p++) {
        at[p] = first[p] = PLAIN(merged)(scores, inside, reference + before, last - before,
                                         steps * p / PARTS);
        by[p] = before + steps * p / PARTS - at[p];
    }
#define STEP(p)                                        \
    const int64_t less_##p = reference[by[p]] < scores[at[p]]; \
    below[at[p]] = by[p];                              \
    by[p] += less_##p, at[p] += 1 - less_##p
    for (int64_t step = 0; step < steps / PARTS; step++) {
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
    }
#undef STEP
    for (int p = 0; p < PARTS; p++) { /* where parts meet, and the remaining steps */
        const int64_t end = p + 1 < PARTS ? first[p + 1] + 1 : inside;
        for (; at[p] < end && at[p] < inside; at[p]++)
            below[at[p]] = by[p] += PLAIN(count_below)(reference + by[p], m - by[p], scores[at[p]]);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t end = below[i];
        if (i && scores[i] == scores[i - 1]) end = through[i - 1];
        else while (end < m && reference[end] == scores[i]) end++;
        through[i] = end;
    }
}
