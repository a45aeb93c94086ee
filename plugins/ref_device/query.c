/* The one exported symbol. A file of its own because fault builds bring another (faults.c). */
#include "device.h"

const ref_faults ref_fault = {0};

const choral_plugin* choral_plugin_query(const choral_host* host) { return ref_describe(host); }
