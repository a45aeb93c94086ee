// Variables of the environment that look like settings and are none: CHORAL_MAX_NUM_SEQ=8 would otherwise change nothing without
// a word. Main thread only.
#pragma once

namespace CLI {
class App;
}

namespace choral::apps {

// Warns of every CHORAL_… that is neither the variable of a flag of `app` nor one of the program's own, with the nearest name.
void warn_of_unknown_variables(CLI::App& app);

}  // namespace choral::apps
