/* Betting row by row, on k alternatives at once, as wealth.py says.
 *
 * The wealth is kept as logarithms between calls and between pieces of rows, which are so
 * short that no product overflows. Within a piece the wealth on alternative j is
 * exp(base_j) lin_j, so a row costs one multiplication and one addition for each
 * alternative and a single logarithm, where adding logarithms would cost k exponentials.
 *
 * Sums run in 8 lanes whatever the vector width is, and products are rounded before they
 * are added, so every instruction set gives the same bits: a replayed watch must raise
 * its alarm at the same row on every machine. */
#include <math.h>

#define TD_MOST 128

double td_bet(double *sums, int64_t k, const double *hit, const double *miss, double left,
              int64_t starts, const uint8_t *what, int64_t n, int64_t piece, double *out) {
    double ratio[3][TD_MOST], base[TD_MOST], lin[TD_MOST], scale[TD_MOST], part[TD_MOST];
    for (int64_t j = 0; j < TD_MOST; j++) {
        ratio[0][j] = 1;
        ratio[1][j] = j < k ? exp(miss[j]) : 1;
        ratio[2][j] = j < k ? exp(hit[j]) : 1;
        lin[j] = scale[j] = part[j] = 0;
    }
    /* Padded to whole vectors: the alternatives beyond k start with 0 and stay there. */
    const int64_t wide = (k + 7) / 8 * 8;
    for (int64_t first = 0; first < n; first += piece) {
        const double least = log(left / (double)(starts + 2));
        double top = -INFINITY;
        for (int64_t j = 0; j < k; j++) {
            /* At least the first stake, as sums[j] is -infinity before any bet. */
            base[j] = sums[j] > least ? sums[j] : least;
            if (base[j] > top) top = base[j];
        }
        for (int64_t j = 0; j < k; j++) {
            lin[j] = exp(sums[j] - base[j]);
            scale[j] = exp(-base[j]);
            part[j] = exp(base[j] - top) / (double)k;
        }
        const double unit = exp(-top);
        const int64_t last = first + piece < n ? first + piece : n;
        for (int64_t row = first; row < last; row++) {
            const double stake = left / (double)(++starts + 1), *own = ratio[what[row]];
            double lanes[8] = {0};
            left -= stake;
            for (int64_t j = 0; j < wide; j += 8)
                for (int at = 0; at < 8; at++) {
                    lin[j + at] = (lin[j + at] + stake * scale[j + at]) * own[j + at];
                    lanes[at] += lin[j + at] * part[j + at];
                }
            const double won = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                               ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
            out[row] = top + log(won + left * unit);
        }
        for (int64_t j = 0; j < k; j++) sums[j] = base[j] + log(lin[j]);
    }
    return left;
}
