/* Radix sort of n scores without NaN, 11 bits a pass; `other` is as large as
 * `data`. Returns whichever of the two holds the result. */
static inline UINT PLAIN(key)(UINT bits) {
    const UINT sign = (UINT)1 << (8 * sizeof(REAL) - 1);
    return bits & sign ? ~bits : bits | sign;
}
static inline UINT PLAIN(unkey)(UINT key) {
    const UINT sign = (UINT)1 << (8 * sizeof(REAL) - 1);
    return key & sign ? key ^ sign : ~key;
}

REAL *PLAIN(td_sort)(REAL *data, REAL *other, int64_t n) {
    enum { BITS = 11, SIZE = 1 << BITS, PASSES = (8 * sizeof(REAL) + BITS - 1) / BITS };
    static _Thread_local int64_t counts[PASSES][SIZE];
    memset(counts, 0, sizeof counts);
    UINT *from = (UINT *)data, *to = (UINT *)other;
    for (int64_t i = 0; i < n; i++) {
        UINT key = from[i] = PLAIN(key)(from[i]);
        for (int p = 0; p < PASSES; p++) counts[p][(key >> (p * BITS)) & (SIZE - 1)]++;
    }
    for (int p = 0; p < PASSES; p++) {
        int64_t *count = counts[p], at = 0;
        if (n == 0 || count[(from[0] >> (p * BITS)) & (SIZE - 1)] == n) continue;
        for (int b = 0; b < SIZE; b++) {
            int64_t here = count[b];
            count[b] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[(from[i] >> (p * BITS)) & (SIZE - 1)]++] = from[i];
        UINT *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0; i < n; i++) from[i] = PLAIN(unkey)(from[i]);
    return (REAL *)from;
}
