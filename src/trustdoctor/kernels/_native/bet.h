/* Betting row by row, on k alternatives at once, as wealth.py defines it.
 *
 * The wealth is kept as logarithms between calls and between blocks of rows, which are so
 * short that no product overflows. Within a block the wealth on alternative j is
 * exp(base_j) linear_j, so a row costs one multiplication and one addition for each
 * alternative and a single logarithm; adding logarithms would cost k exponentials.
 *
 * Sums run in 8 lanes whatever the vector width is, and products are rounded before they
 * are added, so every instruction set gives the same bits: a replayed watch must raise
 * its alarm at the same row on every machine. */
#include <math.h>

#define TD_MAX_BETS 128

double td_bet(double *sums, int64_t k, const double *hit, const double *miss, double reserve,
              int64_t starts, const uint8_t *outcomes, int64_t n, int64_t block, double *out) {
    double ratio[3][TD_MAX_BETS], base[TD_MAX_BETS], linear[TD_MAX_BETS];
    double scale[TD_MAX_BETS], weight[TD_MAX_BETS];
    for (int64_t j = 0; j < TD_MAX_BETS; j++) {
        ratio[0][j] = 1;
        ratio[1][j] = j < k ? exp(miss[j]) : 1;
        ratio[2][j] = j < k ? exp(hit[j]) : 1;
        linear[j] = scale[j] = weight[j] = 0;
    }
    /* Padded to whole vectors: the alternatives beyond k start with 0 and stay there. */
    const int64_t padded = (k + 7) / 8 * 8;
    for (int64_t first = 0; first < n; first += block) {
        const double first_stake = log(reserve / (double)(starts + 2));
        double top = -INFINITY;
        for (int64_t j = 0; j < k; j++) {
            /* At least the first stake, as sums[j] is -infinity before any bet. */
            base[j] = sums[j] > first_stake ? sums[j] : first_stake;
            if (base[j] > top) top = base[j];
        }
        for (int64_t j = 0; j < k; j++) {
            linear[j] = exp(sums[j] - base[j]);
            scale[j] = exp(-base[j]);
            weight[j] = exp(base[j] - top) / (double)k;
        }
        const double inv_top = exp(-top);
        const int64_t last = first + block < n ? first + block : n;
        for (int64_t row = first; row < last; row++) {
            const double stake = reserve / (double)(++starts + 1), *ratios = ratio[outcomes[row]];
            double lanes[8] = {0};
            reserve -= stake;
            for (int64_t j = 0; j < padded; j += 8)
                for (int lane = 0; lane < 8; lane++) {
                    linear[j + lane] += stake * scale[j + lane];
                    linear[j + lane] *= ratios[j + lane];
                    lanes[lane] += linear[j + lane] * weight[j + lane];
                }
            const double wealth = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                               ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
            out[row] = top + log(wealth + reserve * inv_top);
        }
        for (int64_t j = 0; j < k; j++) sums[j] = base[j] + log(linear[j]);
    }
    return reserve;
}
