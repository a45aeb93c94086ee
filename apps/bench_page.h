// What `choral bench` found as parts of a page: the text report's tables, with bars of throughput and of what it is of the
// roofline.
#pragma once

#include "bench_adapters.h"
#include "bench_report.h"
#include "html_page.h"

namespace choral::apps {

// A column of figures as bars; `whole` is what fills one, 0: the largest figure. Cells without a figure stay as they are.
void draw_bars(HtmlTable& table, size_t column, double whole);

void add_bench_report(const BenchReport& report, HtmlPage& to);
void add_adapter_report(const AdapterReport& report, const AdapterBenchFlags& flags, HtmlPage& to);

}  // namespace choral::apps
