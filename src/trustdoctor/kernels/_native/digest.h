/* 128 bits that two different arrays of bytes of one size share by chance alone.
 *
 * Two sums of 64 bits run over every 16 bytes, each with keys of its own out of the
 * 8 random numbers of `keys`; a step can be undone, so what differs once differs until
 * other bytes make up for it. Nobody who does not know the keys can make arrays meet. */
static inline uint64_t td_step(uint64_t sum, uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    sum ^= (uint64_t)product ^ (uint64_t)(product >> 64);
    return (sum << 29 | sum >> 35) * 0x9E3779B97F4A7C15ull;
}

void td_digest(const uint8_t *data, int64_t n, const uint64_t *keys, uint64_t *out) {
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
