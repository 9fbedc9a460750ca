// The file with uPlot, which the page loads with its first chart.

import uPlot from "uplot";

window.uPlot = uPlot;
