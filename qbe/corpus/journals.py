"""Names of journals for the macros that NASA's Astrophysics Data System writes in their place."""

_NAMES = """
aj Astronomical Journal; actaa Acta Astronomica; araa Annual Review of Astronomy and Astrophysics; apj
Astrophysical Journal; apjl Astrophysical Journal Letters; apjlett Astrophysical Journal Letters; apjs
Astrophysical Journal Supplement Series; apjsupp Astrophysical Journal Supplement Series; ao Applied Optics;
applopt Applied Optics; apss Astrophysics and Space Science; aap Astronomy and Astrophysics; aapr Astronomy
and Astrophysics Review; aaps Astronomy and Astrophysics Supplement Series; azh Astronomicheskii Zhurnal; aas
American Astronomical Society Meeting Abstracts; baas Bulletin of the American Astronomical Society; bac
Bulletin of the Astronomical Institutes of Czechoslovakia; bain Bulletin of the Astronomical Institutes of
the Netherlands; caa Chinese Astronomy and Astrophysics; cjaa Chinese Journal of Astronomy and Astrophysics;
dps AAS/Division for Planetary Sciences Meeting Abstracts; fcp Fundamentals of Cosmic Physics; gca Geochimica
et Cosmochimica Acta; grl Geophysical Research Letters; iaucirc IAU Circulars; icarus Icarus; jaavso Journal
of the American Association of Variable Star Observers; jcap Journal of Cosmology and Astroparticle Physics;
jcp Journal of Chemical Physics; jgr Journal of Geophysical Research; jqsrt Journal of Quantitative
Spectroscopy and Radiative Transfer; jrasc Journal of the Royal Astronomical Society of Canada; maps
Meteoritics and Planetary Science; memras Memoirs of the Royal Astronomical Society; memsai Memorie della
Societa Astronomica Italiana; mnras Monthly Notices of the Royal Astronomical Society; na New Astronomy; nar
New Astronomy Reviews; nat Nature; nphysa Nuclear Physics A; pasa Publications of the Astronomical Society of
Australia; pasj Publications of the Astronomical Society of Japan; pasp Publications of the Astronomical
Society of the Pacific; physrep Physics Reports; physscr Physica Scripta; planss Planetary and Space Science;
pra Physical Review A; prb Physical Review B; prc Physical Review C; prd Physical Review D; pre Physical
Review E; prl Physical Review Letters; procspie Proceedings of SPIE; psj Planetary Science Journal; qjras
Quarterly Journal of the Royal Astronomical Society; rmxaa Revista Mexicana de Astronomia y Astrofisica;
skytel Sky and Telescope; solphys Solar Physics; sovast Soviet Astronomy; ssr Space Science Reviews; zap
Zeitschrift fuer Astrophysik; aplett Astrophysics Letters; apspr Astrophysics and Space Physics Research
"""

JOURNALS: dict[str, str] = {
    macro: name for macro, _, name in (" ".join(each.split()).partition(" ") for each in _NAMES.split(";"))
}
"""The journals by macro, without its backslash."""
