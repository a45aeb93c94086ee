// Standard input, output and error of a process whose parent closed some of them. Main thread, before any file is opened.
#pragma once

namespace choral::apps {

// Puts an empty file that cannot be written in place of each closed one, so that no file opened later gets its number: reading
// finds the end, writing fails as it does on a closed descriptor.
void replace_closed_standard_files();

}  // namespace choral::apps
