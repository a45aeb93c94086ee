// What doctor says about one model: read from its headers, no weight is touched.
#pragma once

#include "choral/llm.h"
#include "engine/model_loader.h"
#include "tools/doctor_report.h"

namespace choral::tools {

// The model is built for `session` in `forms`, to see that it can be. The Status is the first thing that keeps it from loading.
Status examine_model(const EngineOptions& options, const platform::Context& ctx, const engine::ModelForms& forms,
                     DoctorReport& report);

}  // namespace choral::tools
