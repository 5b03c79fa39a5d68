/* The bodies for one instruction set: vectors of BYTES, functions with TARGET. LANES is
 * in how many lanes the sums over a row run, on every instruction set. */
#define TD_INLINE static inline __attribute__((always_inline TARGET))
#define TD_ENTRY __attribute__((noinline TARGET)) static
#define WIDTH ((int)(BYTES / sizeof(REAL)))

#define REAL float
#define UINT uint32_t
#define INT int32_t
#define NAME(x) JOINED(x, f32, ISA)
#define FMA FMA_F32
#define LANES 16
#define MANTISSA 23
#define BIAS 127
#define EXP_TERMS 7
#define LOG_TERMS 5
#define EXP_LOWEST -87.0f
#define ROUND_MAGIC 12582912.0f
#define LN2_HI 0.693359375f
#define LN2_LO -2.12194440e-4f
#include "rows_body.h"
#include "calibration_body.h"
#include "undef.h"

#define REAL double
#define UINT uint64_t
#define INT int64_t
#define NAME(x) JOINED(x, f64, ISA)
#define FMA FMA_F64
#define LANES 8
#define MANTISSA 52
#define BIAS 1023
#define EXP_TERMS 13
#define LOG_TERMS 11
#define EXP_LOWEST -708.0
#define ROUND_MAGIC 6755399441055744.0
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10
#include "rows_body.h"
#include "calibration_body.h"
#include "undef.h"

#undef TD_INLINE
#undef TD_ENTRY
#undef WIDTH
#undef ISA
#undef TARGET
#undef BYTES
#undef FMA_F32
#undef FMA_F64
