/* Takes back what a type defined, so that the next can define it. */
#undef VEC
#undef IVEC
#undef UVEC
#undef SUMS
#undef REAL
#undef UINT
#undef INT
#undef NAME
#undef LANES
#undef MANTISSA
#undef BIAS
#undef EXP_TERMS
#undef LOG_TERMS
#undef EXP_LOWEST
#undef ROUND_MAGIC
#undef LN2_HI
#undef LN2_LO
