/* 128 bits that two different arrays of bytes of one size share only by chance.
 *
 * Two sums of 64 bits run over every 16 bytes, each with its own keys out of the 8 random
 * numbers of `keys`. A 64 x 64 -> 128 bit product, its halves xored, mixes 16 bytes in two
 * instructions (as in wyhash), which is why this runs at the speed of memory. A step can be
 * undone, so two sums that differ once stay different until other bytes make up for it.
 * Without the keys nobody can construct arrays whose digests are equal. */
static inline uint64_t td_step(uint64_t sum, uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    sum ^= (uint64_t)product ^ (uint64_t)(product >> 64);
    /* Rotated, so that high bits reach low ones; the factor is 2^64 over the golden ratio. */
    return (sum << 29 | sum >> 35) * 0x9E3779B97F4A7C15ull;
}

void td_digest(const uint8_t *data, int64_t n, const uint64_t *keys, uint64_t *out) {
    /* Four sums that do not wait for each other keep the multiplier busy. */
    uint64_t sums[4] = {1, 2, 3, 4}, words[4];
    for (int64_t at = 0; at < n; at += sizeof words) {
        const int64_t left = n - at;
        if (left >= (int64_t)sizeof words) memcpy(words, data + at, sizeof words);
        else memcpy(memset(words, 0, sizeof words), data + at, left);
        sums[0] = td_step(sums[0], words[0] ^ keys[0], words[1] ^ keys[1]);
        sums[1] = td_step(sums[1], words[0] ^ keys[2], words[1] ^ keys[3]);
        sums[2] = td_step(sums[2], words[2] ^ keys[4], words[3] ^ keys[5]);
        sums[3] = td_step(sums[3], words[2] ^ keys[6], words[3] ^ keys[7]);
    }
    out[0] = td_step(sums[0], sums[2], keys[0] | 1);
    out[1] = td_step(sums[1], sums[3], keys[1] | 1);
}
