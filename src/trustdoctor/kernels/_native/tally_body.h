/* A cell of a sketch: scores that agree in the leading bits of their key. */
typedef struct {
    uint64_t key;
    uint32_t count[2]; /* correct, wrong; both 0 in an empty slot */
    REAL low, high;
} PLAIN(cell);

/* Counts n scores in the cells of a hash table of `slots` (a power of two); a cell's name
 * is the key of its scores without the last `shift` bits, see td_dropped. Stops when `used`
 * reaches `limit`, or at a NaN. Returns the number of scores that it counted.
 *
 * The table does not fit into the cache, and waiting for it would be most of the time. So
 * the slots of the next AHEAD scores are fetched before any of them is counted, and eight
 * neighbouring cells lie together: scores come in clusters. */
int64_t PLAIN(td_tally)(PLAIN(cell) *table, int64_t slots, int64_t *used, int64_t limit,
                       int shift, const REAL *scores, const uint8_t *errors, int64_t n) {
    enum { AHEAD = 64 };
    const uint64_t last = (uint64_t)slots - 1;
    const int blocks = 64 - (__builtin_ctzll((uint64_t)slots) - 3);
    uint64_t keys[AHEAD], places[AHEAD];
    for (int64_t first = 0; first < n; first += AHEAD) {
        const int here = n - first < AHEAD ? (int)(n - first) : AHEAD;
        for (int i = 0; i < here; i++) {
            const double x = (double)scores[first + i] + 0.0; /* -0 becomes 0 */
            const int bits = td_dropped(x, shift);
            const uint64_t key = td_key(x) >> bits;
            keys[i] = key << bits;
            /* Fibonacci hashing of the block; the cell's place within it is not hashed. */
            places[i] = ((key >> 3) * 0x9E3779B97F4A7C15ull >> blocks) << 3 | (key & 7);
            __builtin_prefetch(table + places[i], 1);
        }
        for (int i = 0; i < here; i++) {
            const REAL x = scores[first + i] + (REAL)0;
            if (x != x) return first + i;
            uint64_t at = places[i];
            while ((table[at].count[0] | table[at].count[1]) && table[at].key != keys[i])
                at = (at + 1) & last;
            PLAIN(cell) *cell = table + at;
            if (!(cell->count[0] | cell->count[1])) {
                if (*used == limit) return first + i;
                ++*used;
                cell->key = keys[i], cell->low = cell->high = x;
            }
            cell->low = x < cell->low ? x : cell->low;
            cell->high = x > cell->high ? x : cell->high;
            cell->count[errors[first + i] != 0]++;
        }
    }
    return n;
}
