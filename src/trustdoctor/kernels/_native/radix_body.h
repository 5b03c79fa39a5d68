/* Stable radix sort (least significant digit first) of n ELEMENTs by KEY, an unsigned
 * integer; `to` is as large as `from`. Returns the one of the two that holds the result.
 *
 * A pass sorts by 8 bits: its 256 write positions stay in the first-level cache, and with
 * more bits they would not. Four passes are enough for keys of 32 bits. Keys of 64 bits
 * would need eight; they get five, by the first 40 bits in which any two differ, and keys
 * that agree in those end up in runs, most of which are short and sorted by insertion. */
#define RADIX(name) JOINED_TWO(name, ELEMENT)

static inline void RADIX(pass)(const ELEMENT *from, ELEMENT *to, int64_t n, int shift,
                               int64_t *counts) {
    int64_t at = 0;
    for (int b = 0; b < 256; b++) {
        const int64_t here = counts[b];
        counts[b] = at;
        at += here;
    }
    for (int64_t i = 0; i < n; i++) to[counts[KEY(from[i]) >> shift & 255]++] = from[i];
}

/* Sorts a run by the last 24 bits of its keys. Runs of equal scores are sorted already,
 * short ones are sorted by insertion, which needs no counts. */
static void RADIX(sort_run)(ELEMENT *run, ELEMENT *buffer, int64_t n) {
    int64_t sorted = 1;
    while (sorted < n && KEY(run[sorted - 1]) <= KEY(run[sorted])) sorted++;
    for (; sorted < n && n <= 48; sorted++) {
        const ELEMENT here = run[sorted];
        int64_t at = sorted;
        for (; at > 0 && KEY(run[at - 1]) > KEY(here); at--) run[at] = run[at - 1];
        run[at] = here;
    }
    if (sorted >= n) return;
    ELEMENT *from = run, *to = buffer;
    for (int shift = 0; shift < 24; shift += 8) {
        int64_t counts[256] = {0};
        for (int64_t i = 0; i < n; i++) counts[KEY(from[i]) >> shift & 255]++;
        RADIX(pass)(from, to, n, shift, counts);
        ELEMENT *swap = from;
        from = to;
        to = swap;
    }
    memcpy(run, from, n * sizeof(ELEMENT));
}

static ELEMENT *RADIX(radix_sort)(ELEMENT *from, ELEMENT *to, int64_t n) {
    enum { LONG = sizeof KEY(from[0]) > 4, PASSES = LONG ? 5 : 4 };
    /* The digits of all passes are counted in one walk through the keys. */
    int64_t counts[PASSES][256] = {{0}};
    uint64_t differing = 1;
    for (int64_t i = 0; LONG && i < n; i++) differing |= KEY(from[i]) ^ KEY(from[0]);
    const int width = 64 - __builtin_clzll(differing);
    const int dropped = width > 8 * PASSES ? width - 8 * PASSES : 0;
    for (int64_t i = 0; i < n; i++)
        for (int p = 0; p < PASSES; p++) counts[p][KEY(from[i]) >> (dropped + 8 * p) & 255]++;
    for (int p = 0; p < PASSES; p++) {
        /* A digit that all keys share needs no pass: often the exponent. */
        if (n == 0 || counts[p][KEY(from[0]) >> (dropped + 8 * p) & 255] == n) continue;
        RADIX(pass)(from, to, n, dropped + 8 * p, counts[p]);
        ELEMENT *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0, end; dropped && i < n; i = end) {
        for (end = i + 1; end < n && KEY(from[i]) >> dropped == KEY(from[end]) >> dropped;) end++;
        RADIX(sort_run)(from + i, to + i, end - i);
    }
    return from;
}
#undef RADIX
#undef ELEMENT
#undef KEY
