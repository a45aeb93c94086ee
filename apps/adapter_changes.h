// How much adapters change each kind of module in each layer, as heat maps: ‖scaling·B·A‖ (Frobenius' norm), one scale for all of
// them.
#pragma once

#include <string>
#include <vector>

#include "choral/llm.h"
#include "html_page.h"

namespace choral::apps {

struct AdapterChanges {
  std::string name;
  std::vector<AdapterLayer> layers;
};

// Nothing where there are no adapters.
void add_adapter_changes(const std::vector<AdapterChanges>& adapters, HtmlPage& to);

}  // namespace choral::apps
