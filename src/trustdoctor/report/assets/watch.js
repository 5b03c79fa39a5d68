(() => {
"use strict";
const { data } = dom;

/* The library gives natural logarithms of evidence, and times in seconds. */
const chartOf = ({ lines, test, ...chart }) => {
  if (chart.kind === "evidence") return { ...chart, ...timeSeries.evidenceOf(lines[0].values, test.limit) };
  const rates = timeSeries.ratesOf(lines, test);
  if (chart.from_zero) rates.range[0] = 0;
  return { ...chart, ...rates, axis: chart.axis };
};
for (const chart of data.charts) {
  timeSeries.attach(chart.id);
  timeSeries.plot(chart.id, chartOf({ ...chart, times: chart.times.map((seconds) => 1000 * seconds) }));
}
})();
