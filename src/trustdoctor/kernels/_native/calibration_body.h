/* Sums up what n rows say of the calibration of the softmax. Each row's term is rounded to
 * a multiple of 2^-30 and the sums are integers: they do not depend on the order of rows,
 * so batches and machines add up exactly. alpha and beta are the rows' doubts; `missed`
 * holds, for the wrong rows only and in order, how far the label's logit is below the top,
 * over T.
 *
 *     confidence = 1 / (1 + exp(beta)),  g = 1 / (1 + exp(alpha)),
 *     nll = log(1 + exp(beta)) + missed,  brier = g - 2 confidence exp(-missed) + 1
 *
 * out: for each of 15 bins of confidence the rows, the sum of correctness less
 * confidence, and those of its square and its size; then confidence, its square, brier, its square;
 * nll and its square as high and low halves; rows whose nll is infinite. */
#define BINS 15
#define STEP 1073741824.0
TD_ENTRY void NAME(calibration)(const REAL *alpha, const REAL *beta, const uint8_t *wrong,
                                 const double *missed, int64_t n, int64_t *out) {
    int64_t *rows = out, *gaps = out + BINS, *squares = out + 2 * BINS, *sizes = out + 3 * BINS,
            *rest = out + 4 * BINS;
    __int128 nll_sum = 0, nll_squares = 0;
    const double most = 0x1p105; /* so that sums of a batch stay below 2^127 */
    for (int64_t first = 0; first < n; first += WIDTH) {
        const int here = n - first < WIDTH ? (int)(n - first) : WIDTH;
        VEC a = NAME(fill)(0), b = a, m = a;
        memcpy(&a, alpha + first, here * sizeof(REAL));
        memcpy(&b, beta + first, here * sizeof(REAL));
        double apart[WIDTH];
        for (int l = 0; l < here; l++) {
            apart[l] = wrong[first + l] ? *missed++ : 0;
            m[l] = (REAL)-apart[l];
        }
        VEC t = NAME(vexp)(NAME(pick)(b > 0, -b, b)), y = 1 + t;
        VEC confidence = NAME(pick)(b > 0, t, NAME(fill)(1)) / y;
        VEC nll = NAME(pick)(b > 0, b, NAME(fill)(0)) + NAME(vlog)(y);
        VEC s = NAME(vexp)(NAME(pick)(a > 0, -a, a));
        VEC g = NAME(pick)(a > 0, s, NAME(fill)(1)) / (1 + s);
        VEC brier = g - 2 * confidence * NAME(vexp)(m) + 1;
        for (int l = 0; l < here; l++) {
            const double c = confidence[l], gap = !wrong[first + l] - c, r = brier[l];
            int bin = (int)(c * BINS);
            bin = bin < BINS ? bin : BINS - 1;
            rows[bin]++;
            gaps[bin] += __builtin_llrint(gap * STEP);
            squares[bin] += __builtin_llrint(gap * gap * STEP);
            sizes[bin] += __builtin_llrint(__builtin_fabs(gap) * STEP);
            rest[0] += __builtin_llrint(c * STEP);
            rest[1] += __builtin_llrint(c * c * STEP);
            rest[2] += __builtin_llrint(r * STEP);
            rest[3] += __builtin_llrint(r * r * STEP);
            const double x = nll[l] + apart[l], one = x * STEP, two = x * x * STEP;
            if (x > 1.7e308)
                rest[8]++;
            else {
                nll_sum += (__int128)__builtin_rint(one < most ? one : most);
                nll_squares += (__int128)__builtin_rint(two < most ? two : most);
            }
        }
    }
    const int64_t low = ((int64_t)1 << 62) - 1;
    rest[4] = (int64_t)(nll_sum >> 62), rest[5] = (int64_t)(nll_sum & low);
    rest[6] = (int64_t)(nll_squares >> 62), rest[7] = (int64_t)(nll_squares & low);
}

#undef BINS
#undef STEP
