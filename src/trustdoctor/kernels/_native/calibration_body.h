/* Sums over n rows that measure the calibration of the softmax. Each row's term is rounded
 * to a multiple of 2^-30 and the sums are integers: they do not depend on the order of rows,
 * so batches and machines add up exactly. alpha and beta are the rows' doubts; `missed`
 * holds, for the wrong rows only and in order, how far the label's logit is below the top,
 * divided by T.
 *
 *     confidence = 1 / (1 + exp(beta)),  g = 1 / (1 + exp(alpha)),
 *     nll = log(1 + exp(beta)) + missed,  brier = g - 2 confidence exp(-missed) + 1
 *
 * out: for each of 15 bins of confidence the rows, and the sums of correctness minus
 * confidence, of its square and of its absolute value; then the sums of confidence, its
 * square, brier and its square; nll and its square as high and low halves; and the number of
 * rows whose nll is infinite. */
#define BINS 15
#define STEP 1073741824.0
TD_ENTRY void NAME(calibration)(const REAL *alpha, const REAL *beta, const uint8_t *wrong,
                                 const double *missed, int64_t n, int64_t *out) {
    int64_t *rows = out, *gaps = out + BINS, *squares = out + 2 * BINS, *sizes = out + 3 * BINS,
            *totals = out + 4 * BINS;
    __int128 nll_sum = 0, nll_squares = 0;
    const double limit = 0x1p105; /* so that sums of a batch stay below 2^127 */
    for (int64_t first = 0; first < n; first += WIDTH) {
        const int in_vector = n - first < WIDTH ? (int)(n - first) : WIDTH;
        VEC a = NAME(fill)(0), b = a, m = a;
        memcpy(&a, alpha + first, in_vector * sizeof(REAL));
        memcpy(&b, beta + first, in_vector * sizeof(REAL));
        double label_gap[WIDTH];
        for (int l = 0; l < in_vector; l++) {
            label_gap[l] = wrong[first + l] ? *missed++ : 0;
            m[l] = (REAL)-label_gap[l];
        }
        VEC t = NAME(vexp)(NAME(pick)(b > 0, -b, b)), y = 1 + t;
        VEC confidence = NAME(pick)(b > 0, t, NAME(fill)(1)) / y;
        VEC nll = NAME(pick)(b > 0, b, NAME(fill)(0)) + NAME(vlog)(y);
        VEC s = NAME(vexp)(NAME(pick)(a > 0, -a, a));
        VEC g = NAME(pick)(a > 0, s, NAME(fill)(1)) / (1 + s);
        VEC brier = g - 2 * confidence * NAME(vexp)(m) + 1;
        for (int l = 0; l < in_vector; l++) {
            const double c = confidence[l], gap = !wrong[first + l] - c, r = brier[l];
            int bin = (int)(c * BINS);
            bin = bin < BINS ? bin : BINS - 1;
            rows[bin]++;
            gaps[bin] += __builtin_llrint(gap * STEP);
            squares[bin] += __builtin_llrint(gap * gap * STEP);
            sizes[bin] += __builtin_llrint(__builtin_fabs(gap) * STEP);
            totals[0] += __builtin_llrint(c * STEP);
            totals[1] += __builtin_llrint(c * c * STEP);
            totals[2] += __builtin_llrint(r * STEP);
            totals[3] += __builtin_llrint(r * r * STEP);
            const double x = nll[l] + label_gap[l];
            const double scaled = x * STEP, scaled_square = x * x * STEP;
            if (x > 1.7e308)
                totals[8]++;
            else {
                nll_sum += (__int128)__builtin_rint(scaled < limit ? scaled : limit);
                nll_squares +=
                    (__int128)__builtin_rint(scaled_square < limit ? scaled_square : limit);
            }
        }
    }
    const int64_t low = ((int64_t)1 << 62) - 1;
    totals[4] = (int64_t)(nll_sum >> 62), totals[5] = (int64_t)(nll_sum & low);
    totals[6] = (int64_t)(nll_squares >> 62), totals[7] = (int64_t)(nll_squares & low);
}

#undef BINS
#undef STEP
