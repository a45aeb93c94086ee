// What doctor says about one model: read from its headers, no weight is touched.
#pragma once

#include "choral/llm.h"
#include "doctor_report.h"

namespace choral::apps {

// The Status is the first thing that keeps the model from loading.
Status examine_model(const EngineOptions& options, int64_t memory_free, DoctorReport& report);

}  // namespace choral::apps
