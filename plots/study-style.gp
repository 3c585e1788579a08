# Shared by the figures of the study: an SVG in the colours of style.gp. Called with width and height.
set terminal svg font 'DejaVu Sans,12' size width, height linewidth 1.5 background rgb 'white'
set output output
set border 3
set tics nomirror out
set grid ytics lc rgb '#dddddd' lw 0.6
set key off
set datafile separator '\t'
STALE = '#D55E00'; PIPE = '#E69F00'; DISTRI = '#009E73'; EXACT = '#0072B2'; OWN = '#882255'; GREY = '#777777'
